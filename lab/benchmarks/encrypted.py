"""One comparison of two descriptors by veil's forms and under homomorphic encryption: time, bytes, and what each promises.

    pip install tenseal
    python lab/benchmarks/encrypted.py [--dims 128 512] [--m 2 4 8 16] [--batch 1000] [--encrypted 50] [--threads 1]

TenSEAL serves this comparison only; veil does not depend on it. CKKS: polynomials of degree 8192, coefficient moduli of 60,
40, 40 and 60 bits (128-bit security), scale 2^40; the dot product of two encrypted unit vectors, relinearized and rotated by
Galois keys, then decrypted by whoever holds the secret key. One pair fills a part of the slots; packing several templates into
one ciphertext would divide its time and bytes, at most by 4096 / dimension, and is not done here. Descriptors are random unit
vectors, as times depend on sizes only; subspaces are random ones through them. `one ms` is one comparison by itself, `batch ms`
one of a probe with many templates; encrypting and decrypting are listed apart. Best of several; times are those of the
processor if one thread works, of the clock otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil import distances
from worlds import affine_set, generator, unit

try:
    import tenseal
except ImportError:
    tenseal = None

DEGREE, MODULI, SCALE = 8192, [60, 40, 40, 60], 2.0**40
REPEATS = 20
# Keys beside the secret one, and what TenSEAL calls their part of a serialized context.
KEYS = {"public": "save_public_key", "relin": "save_relin_keys", "galois": "save_galois_keys"}
PROMISES = {
    "CKKS": "the server learns nothing of probe or template, if RLWE is hard; whoever holds the secret key decides",
    "p2s": "template: no proof, an obfuscation; leaks what `veil evaluate faces` measures. The probe is in clear, or turned",
    "s2s": "no proof, an obfuscation; leaks what `veil evaluate faces` measures, and more with each fresh probe",
    "keyed rotation": "added to p2s or s2s: unlinkable, and useless with a gallery, only as long as the key is secret",
}
SHORT = {"CKKS": "as hard as RLWE", "p2s": "no proof", "s2s": "no proof"}
HEADS = ("one ms", "batch ms", "template B", "probe B", "max error", "promise")


def main() -> int:
    """Print one line for each way and dimension; exit code 1 where TenSEAL is missing or a distance is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--m", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--batch", type=int, default=1000, help="templates that one probe is compared with")
    parser.add_argument("--encrypted", type=int, default=50, help="of these, how many are encrypted")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the same as records")
    arguments = parser.parse_args()
    if tenseal is None:
        print("this benchmark compares with TenSEAL, which is not installed; pip install tenseal")
        return 1
    print(f"{arguments.threads} thread(s); a batch of {arguments.batch}, of which {arguments.encrypted} under encryption")
    print(f"{'':5}{'dim':>5}{'m':>4}" + "".join(f"{head:>17}" if head == "promise" else f"{head:>12}" for head in HEADS))
    records: list[dict[str, object]] = []
    with threadpool_limits(arguments.threads):
        for dim in arguments.dims:
            records.append(_encrypted(dim, arguments.encrypted, arguments.threads))
            _print(records[-1])
            for m in arguments.m:
                for way in ("p2s", "s2s"):
                    records.append(_lifted(way, dim, m, arguments.batch, arguments.threads))
                    _print(records[-1])
    for record in records:
        if record["way"] == "CKKS":
            print(f"CKKS, {record['dim']}-D: encrypt {record['encrypt_ms']:.1f} ms, decrypt {record['decrypt_ms']:.1f} ms")
            sizes = ", ".join(f"{name} {record[f'{name}_key_bytes']} B" for name in KEYS)
            print(f"CKKS, {record['dim']}-D: keys, once a client: {sizes}")
    for name, promise in PROMISES.items():
        print(f"{name}: {promise}")
    if arguments.json:
        record = {"threads": arguments.threads, "rows": records, "promises": PROMISES}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return int(any(not record["error"] < 1e-5 for record in records))  # type: ignore[operator]


def _print(record: dict[str, object]) -> None:
    numbers = f"{record['one_ms']:12.4f}{record['batch_ms']:12.5f}{record['template_bytes']:12}{record['probe_bytes']:12}"
    way = str(record["way"])
    print(f"{way:5}{record['dim']:5}{record['m'] or '-':>4}{numbers}{record['error']:12.0e}{SHORT[way]:>17}", flush=True)


def _encrypted(dim: int, count: int, threads: int) -> dict[str, object]:
    """The dot product of an encrypted probe with encrypted templates."""
    random = generator(f"encrypted {dim}")
    context = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=DEGREE, coeff_mod_bit_sizes=MODULI, n_threads=threads
    )
    context.global_scale = SCALE
    context.generate_galois_keys()
    vectors, probe = unit(random.normal(size=(count, dim))), unit(random.normal(size=(1, dim)))[0]
    templates = [tenseal.ckks_vector(context, vector.tolist()) for vector in vectors]
    asked = tenseal.ckks_vector(context, probe.tolist())
    products: list[object] = []

    def batch() -> None:
        products[:] = [asked.dot(template) for template in templates]

    clock = _clock(threads)
    one, whole = _best(clock, lambda: asked.dot(templates[0]), REPEATS), _best(clock, batch, 2)
    decrypted = np.array([product.decrypt()[0] for product in products])  # type: ignore[attr-defined]
    return {
        **{"way": "CKKS", "dim": dim, "m": 0, "one_ms": one, "batch_ms": whole / count},
        **{"template_bytes": len(templates[0].serialize()), "probe_bytes": len(asked.serialize())},
        "encrypt_ms": _best(clock, lambda: tenseal.ckks_vector(context, probe.tolist()), REPEATS),
        "decrypt_ms": _best(clock, products[0].decrypt, REPEATS),  # type: ignore[attr-defined]
        **{f"{name}_key_bytes": _key_bytes(context, option) for name, option in KEYS.items()},
        "error": float(np.abs(decrypted - vectors @ probe).max()),
    }


def _key_bytes(context: object, option: str) -> int:
    """Bytes that one key adds to the parameters."""
    none = dict.fromkeys([*KEYS.values(), "save_secret_key"], False)
    bare, held = (len(context.serialize(**{**none, option: kept})) for kept in (False, True))  # type: ignore[attr-defined]
    return held - bare


def _lifted(way: str, dim: int, m: int, batch: int, threads: int) -> dict[str, object]:
    """Distances of a point, or a subspace, from subspaces."""
    random = generator(f"lifted {way} {dim} {m}")
    templates, probes = (_forms(random, count, dim, m if by == "s2s" else 0) for count, by in ((batch, "s2s"), (1, way)))
    first = templates[0][:1], None if templates[1] is None else templates[1][:1]
    truth = distances.pairwise(probes, templates, backend="reference")
    computed = distances.pairwise(probes, templates, backend="cpu", threads=threads)
    clock = _clock(threads)
    whole = _best(clock, lambda: distances.pairwise(probes, templates, backend="cpu", threads=threads), REPEATS)
    numbers = 4 * dim
    return {
        **{"way": way, "dim": dim, "m": m, "batch_ms": whole / batch},
        "one_ms": _best(clock, lambda: distances.pairwise(probes, first, backend="cpu", threads=threads), REPEATS),
        **{"template_bytes": numbers * (m + 1), "probe_bytes": numbers * (m + 1 if way == "s2s" else 1)},
        "error": float(np.abs(computed - truth).max()),
    }


def _forms(random: np.random.Generator, count: int, dim: int, m: int) -> distances.FeatureSet:
    inside = unit(random.normal(size=(count, dim)))
    if m == 0:
        return inside.astype(np.float32), None
    origin, basis = affine_set(random, inside, m)
    return origin.astype(np.float32), basis.astype(np.float32)


def _clock(threads: int) -> Callable[[], float]:
    return time.process_time if threads == 1 else time.perf_counter


def _best(clock: Callable[[], float], work: Callable[[], object], repeats: int) -> float:
    """Milliseconds."""
    best = np.inf
    for _ in range(repeats):
        start = clock()
        work()
        best = min(best, clock() - start)
    return 1e3 * float(best)


if __name__ == "__main__":
    sys.exit(main())
