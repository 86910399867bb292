"""Program that runs COLMAP in its own process: reads one JSON request a line, answers in JSON lines, imports nothing of veil.

It is run as a script by `veil.places.maps.colmap`. Between two signs of progress it may use `stall_s` seconds of processor
time; the timer then ends the process by the signal's default action, which needs no cooperation of the code that hangs.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve requests until standard input ends."""
    _end_with_parent()
    _load()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _limit_memory(request["memory_bytes"])
            answer = {"verify": _verify, "map": _map, "map_globally": _map_globally, "complete": _complete, "adjust": _adjust}[
                request["do"]
            ](request)
        except Exception as error:  # errors of any kind: the parent decides
            answer = {"failed": f"{type(error).__name__}: {error}"[:500]}
        _arm(0)
        _say(answer)


def _end_with_parent() -> None:
    """Ask the system, where it can (Linux), to kill this process as soon as its parent ends, however it does."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (ImportError, OSError, AttributeError, TypeError):
        pass


def _load() -> None:
    """Load COLMAP while the parent prepares its request; what fails here fails again at the request, and is reported there."""
    with contextlib.suppress(Exception):
        from veil.colmap import pycolmap  # noqa: F401


def _say(answer: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    except OSError:  # nobody listens any more
        os._exit(1)


def _arm(seconds: float) -> None:
    """Set the timer that ends this process to `seconds` of processor time from now; 0 stops it."""
    if hasattr(signal, "ITIMER_PROF"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory(size: int) -> None:
    if size:
        try:
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (size, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        except (ImportError, AttributeError, ValueError, OSError):
            pass  # not on this system; the clock remains


def _verify(request: dict[str, Any]) -> dict[str, Any]:
    from veil.colmap import pycolmap

    _arm(request["stall_s"])
    pycolmap.set_random_seed(request["seed"])
    options = pycolmap.TwoViewGeometryOptions()
    options.ransac.random_seed = request["seed"]
    _set(options, request["options"])
    pycolmap.geometric_verification(request["database"], two_view_geometry_options=options)
    return {"verified": True}


def _map(request: dict[str, Any]) -> dict[str, Any]:
    from veil.colmap import pycolmap

    registered = 0

    def on_image() -> None:
        nonlocal registered
        registered += 1
        _arm(request["stall_s"])
        _say({"registered": registered})

    _arm(request["stall_s"])
    # COLMAP seeds its threads' generators with seed + thread, so that one thread is what repeats.
    pycolmap.set_random_seed(request["seed"])
    options = pycolmap.IncrementalPipelineOptions()
    options.random_seed = request["seed"]
    options.constant_cameras = set(request["constant_cameras"])
    _set(options, request["options"])
    output = Path(request["output"])
    models = pycolmap.incremental_mapping(
        request["database"],
        output,
        output,
        options=options,
        input_path=request.get("input", ""),  # a model to go on from
        initial_image_pair_callback=on_image,
        next_image_callback=on_image,
    )
    return {"models": len(models)}


def _map_globally(request: dict[str, Any]) -> dict[str, Any]:
    """Map by COLMAP's global mapper, which says nothing between its start and its end."""
    from veil.colmap import pycolmap

    _arm(request["stall_s"])
    pycolmap.set_random_seed(request["seed"])
    options = pycolmap.GlobalPipelineOptions()
    options.random_seed = request["seed"]
    _set(options, request["options"])
    output = Path(request["output"])
    models = pycolmap.global_mapping(request["database"], output, output, options=options)
    return {"models": len(models)}


def _complete(request: dict[str, Any]) -> dict[str, Any]:
    """Triangulate the database's matches in a model whose poses stay as they are."""
    from veil.colmap import pycolmap

    _arm(request["stall_s"])
    pycolmap.set_random_seed(request["seed"])
    options = pycolmap.IncrementalPipelineOptions()
    options.random_seed = request["seed"]
    options.extract_colors = False  # there are no photographs here
    _set(options, request.get("options", {}))
    output = Path(request["output"])
    pycolmap.triangulate_points(
        pycolmap.Reconstruction(request["model"]), request["database"], output, output, clear_points=False, options=options
    )
    return {"completed": True}


def _adjust(request: dict[str, Any]) -> dict[str, Any]:
    """Adjust a model's poses and points, and the cameras that are not held; what does not fit then is left out."""
    from veil.colmap import pycolmap

    _arm(request["stall_s"])
    model = pycolmap.Reconstruction(request["model"])
    config, held = pycolmap.BundleAdjustmentConfig(), set(request["constant_cameras"])
    for image_id in model.reg_image_ids():
        config.add_image(image_id)
    for camera_id in model.cameras:
        if camera_id in held:
            config.set_constant_cam_intrinsics(camera_id)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    options = pycolmap.BundleAdjustmentOptions()
    options.ceres.loss_function_type = pycolmap.LossFunctionType.SOFT_L1
    _set(options, request["options"])
    for limit_px in request["limits_px"]:
        pycolmap.create_default_bundle_adjuster(options, config, model).solve()
        _arm(request["stall_s"])
        _say({"registered": model.num_reg_images()})
        pycolmap.ObservationManager(model).filter_all_points3D(limit_px, request["min_angle_deg"])
    model.write(request["output"])
    return {"adjusted": True}


def _set(options: Any, values: dict[str, Any]) -> None:
    """Assign {"a.b": value} to options.a.b."""
    for name, value in values.items():
        *path, last = name.split(".")
        target = options
        for part in path:
            target = getattr(target, part)
        setattr(target, last, value)


if __name__ == "__main__":
    # Python puts this folder on its path, which holds no module that anybody should import by accident.
    sys.path[:] = [place for place in sys.path if Path(place).absolute() != Path(__file__).absolute().parent]
    main()
