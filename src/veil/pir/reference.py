"""Slow references of private retrieval in Python's integers, by definition: what the compiled kernels are compared with."""

from __future__ import annotations

from collections.abc import Sequence

MODULUS = 1 << 32


def product(rows: Sequence[Sequence[int]], vector: Sequence[int]) -> list[int]:
    """The product of a matrix of bytes, given by its rows, and a vector, modulo 2^32."""
    return [sum(byte * factor for byte, factor in zip(row, vector, strict=True)) % MODULUS for row in rows]


def columns(records: Sequence[bytes], parts: int) -> list[bytes]:
    """The columns of SimplePIR's matrix: the parts of each record in order, the last of them filled up with zeros."""
    rows = -(-len(records[0]) // parts)
    filled = [record.ljust(parts * rows, b"\0") for record in records]
    return [record[part * rows : (part + 1) * rows] for record in filled for part in range(parts)]


def xor(records: Sequence[bytes], chosen: Sequence[bool]) -> bytes:
    """The XOR of the chosen records."""
    total = 0
    for record, is_chosen in zip(records, chosen, strict=True):
        if is_chosen:
            total ^= int.from_bytes(record, "little")
    return total.to_bytes(len(records[0]), "little")


Polynomial = Sequence[int]


def ring_product(left: Polynomial, right: Polynomial, modulus: int) -> list[int]:
    """The product of two polynomials of d coefficients modulo X^d + 1."""
    degree, out = len(left), [0] * len(left)
    for place, one in enumerate(left):
        for other, two in enumerate(right):
            power = place + other
            out[power % degree] += one * two if power < degree else -one * two
    return [value % modulus for value in out]


def automorphism(values: Polynomial, power: int, modulus: int) -> list[int]:
    """The polynomial at X^power, for an odd power, which may be negative."""
    degree, out = len(values), [0] * len(values)
    for place, value in enumerate(values):
        turned = place * power % (2 * degree)
        out[turned % degree] = (value if turned < degree else -value) % modulus
    return out


def hint_polynomial(row: Sequence[int], publics: Sequence[Polynomial], modulus: int) -> list[int]:
    """The polynomial A of a row of bytes, for which the constant of A s is the product of the row and the masks of a query."""
    degree = len(publics[0])
    filled, out = [*row, *[0] * (len(publics) * degree - len(row))], [0] * degree
    for block, public in enumerate(publics):
        turned = automorphism(filled[block * degree : (block + 1) * degree], -1, modulus)
        out = [one + two for one, two in zip(out, ring_product(turned, public, modulus), strict=True)]
    return [value % modulus for value in out]


def digits(values: Polynomial, count: int, dropped: int, bits: int, modulus: int) -> list[list[int]]:
    """Polynomials of signed digits, of which the sum with weights 2^(dropped + bits j) is about the given one."""
    base = 1 << bits
    rests = [(value - modulus if value > modulus // 2 else value) + (1 << dropped >> 1) >> dropped for value in values]
    out = []
    for _ in range(count - 1):
        low = [(rest + base // 2) % base - base // 2 for rest in rests]
        rests = [(rest - digit) // base for rest, digit in zip(rests, low, strict=True)]
        out.append(low)
    return [*out, rests]


def packed(
    hints: Sequence[Polynomial],
    values: Sequence[int],
    public_keys: dict[int, Sequence[Polynomial]],
    keys: dict[int, Sequence[Polynomial]],
    *,
    dropped: int,
    bits: int,
    modulus: int,
) -> tuple[list[int], list[int]]:
    """The packed encryption (a, b), by definition (docs/theory/pir.md, Eq. 15-17).

    - `hints`: the polynomial A_i of each row.
    - `values`: what the server has of each row: its product with a query.
    - `public_keys`, `keys`: w_j and y_j of the keys that lead from 5 to 1 and from -1 to 1, under 5 and -1.
    """
    degree = len(values)
    inverse = pow(degree, -1, modulus)

    def term(power: int) -> list[int]:
        out = [0] * degree
        for place, hint in enumerate(hints):
            shift = [int(other == place) for other in range(degree)]
            product = ring_product(shift, automorphism(hint, power, modulus), modulus)
            out = [one + two for one, two in zip(out, product, strict=True)]
        return [inverse * value % modulus for value in out]

    def less(whole: Polynomial, parts: Sequence[Polynomial], factors: Sequence[Polynomial], power: int) -> list[int]:
        for part, factor in zip(parts, factors, strict=True):
            product = ring_product(part, automorphism(factor, power, modulus), modulus)
            whole = [(one - two) % modulus for one, two in zip(whole, product, strict=True)]
        return list(whole)

    secret, left = list(values), []
    for sign in (1, -1):
        public = term(sign * pow(5, degree // 2 - 1))
        for turn in range(degree // 2 - 2, -1, -1):
            power, parts = sign * pow(5, turn), digits(public, len(keys[5]), dropped, bits, modulus)
            public = less(term(power), parts, public_keys[5], power)
            secret = less(secret, parts, keys[5], power)
        left.append(public)
    parts = digits(left[1], len(keys[-1]), dropped, bits, modulus)
    return less(left[0], parts, public_keys[-1], 1), less(secret, parts, keys[-1], 1)
