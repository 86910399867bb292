"""Program that runs COLMAP in its own process: reads one JSON request a line, answers in JSON lines, imports nothing of veil.

It is run as a script by `veil.places.maps.colmap`. Between two signs of progress it may use `stall_s` seconds of processor
time; the timer then ends the process by the signal's default action, which needs no cooperation of the code that hangs.
"""

import contextlib
import copy
import json
import os
import signal
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

# Scale of the loss of an adjustment by confirmed points: this share of the points' median error, and at least this (pixels).
SCALE, LEAST_SCALE_PX = 0.75, 0.1
# Most iterations of each of several starts before they are compared, and the part of another's cost below which one is better.
COMPARED_AFTER, CLEARLY_LESS = 50, 0.99
# Number of points, each in three images or more, that hold an image, and that two images share at least to be linked.
HELD_BY, LINKED_BY = 30, 15
# Threads of the mappers and of adjustments: with more, the same request has several answers (mapping.md#the-same-map-again).
# Verification may have more: each pair of images is verified by one thread, with the request's seed.
THREADS = 1


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
    options = _pipeline(pycolmap.IncrementalPipelineOptions(), request["seed"])
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
    options = _pipeline(pycolmap.GlobalPipelineOptions(), request["seed"])
    _set(options, request["options"])
    output = Path(request["output"])
    models = pycolmap.global_mapping(request["database"], output, output, options=options)
    return {"models": len(models)}


def _complete(request: dict[str, Any]) -> dict[str, Any]:
    """Triangulate the database's matches in a model whose poses stay as they are."""
    from veil.colmap import pycolmap

    _arm(request["stall_s"])
    options = _pipeline(pycolmap.IncrementalPipelineOptions(), request["seed"])
    options.extract_colors = False  # there are no photographs here
    _set(options, request.get("options", {}))
    output = Path(request["output"])
    pycolmap.triangulate_points(
        pycolmap.Reconstruction(request["model"]), request["database"], output, output, clear_points=False, options=options
    )
    return {"completed": True}


def _adjust(request: dict[str, Any]) -> dict[str, Any]:
    """Adjust a model's poses and points, and the cameras that are not held; what does not fit then is left out.

    If the request is for `confirmed` points, those that only two images see do not count where others hold the images: two
    lines of sight always nearly meet on an epipolar line, so that nothing confirms such a match (mapping.md#confirmed-points).
    """
    from veil.colmap import pycolmap

    _arm(request["stall_s"])
    model = pycolmap.Reconstruction(request["model"])
    straight = {camera_id: model.cameras[camera_id].model for camera_id in request.get("undistorted", ())}
    for camera_id in straight:
        _remodel(model.cameras[camera_id], pycolmap.CameraModelId.SIMPLE_PINHOLE)
    config = _adjusting(model, set(request["constant_cameras"]))
    options = pycolmap.BundleAdjustmentOptions()
    options.ceres.loss_function_type = pycolmap.LossFunctionType.SOFT_L1
    options.ceres.solver_options.num_threads = THREADS
    aside: list[list[tuple[int, int]]] = []
    if request.get("confirmed"):
        options.ceres.loss_function_type = pycolmap.LossFunctionType.CAUCHY
        options.ceres.loss_function_scale = max(LEAST_SCALE_PX, SCALE * _median_error_px(model))
        aside = _set_aside(model)
    _set(options, request["options"])
    model = _best_start(model, request, options, config)
    for limit_px in request["limits_px"]:
        pycolmap.create_default_bundle_adjuster(options, config, model).solve()
        _arm(request["stall_s"])
        _say({"registered": model.num_reg_images()})
        pycolmap.ObservationManager(model).filter_all_points3D(limit_px, request["min_angle_deg"])
    if aside:
        _bring_back(model, aside)
        pycolmap.ObservationManager(model).filter_all_points3D(request["limits_px"][-1], request["min_angle_deg"])
    for camera_id, kind in straight.items():
        _remodel(model.cameras[camera_id], kind)
    model.write(request["output"])
    return {"adjusted": True}


def _adjusting(model: Any, held: set[int]) -> Any:
    """Configuration of an adjustment of all images of a model, which holds the cameras `held`."""
    from veil.colmap import pycolmap

    config = pycolmap.BundleAdjustmentConfig()
    for image_id in model.reg_image_ids():
        config.add_image(image_id)
    for camera_id in model.cameras:
        if camera_id in held:
            config.set_constant_cam_intrinsics(camera_id)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    return config


def _best_start(model: Any, request: dict[str, Any], options: Any, config: Any) -> Any:
    """The model, or one that began with other focal lengths of the cameras `zoomed` and fits the same observations better.

    From each focal length poses and points are adjusted first, with all cameras held, and then everything.
    """
    from veil.colmap import pycolmap

    if not request.get("zoomed"):
        return model
    posed = _adjusting(model, set(model.cameras))

    def solved(start: Any, config: Any) -> float:
        summary: Any = pycolmap.create_default_bundle_adjuster(options, config, start).solve()
        _arm(request["stall_s"])
        _say({"registered": model.num_reg_images()})
        return float(summary.ceres_summary.final_cost)

    settings = options.ceres.solver_options
    most, settings.max_num_iterations = settings.max_num_iterations, min(settings.max_num_iterations, COMPARED_AFTER)
    best = copy.deepcopy(model)
    least = solved(best, config)
    for zoom in request["zooms"]:
        start = copy.deepcopy(model)
        for camera_id in request["zoomed"]:
            camera = start.cameras[camera_id]
            rows = camera.focal_length_idxs()
            camera.params = [value * zoom if row in rows else value for row, value in enumerate(camera.params)]
        solved(start, posed)
        cost = solved(start, config)
        if cost < CLEARLY_LESS * least:
            best, least = start, cost
    settings.max_num_iterations = most
    return best


def _remodel(camera: Any, kind: Any) -> None:
    """Give a camera of one focal length another model of one, without distortion."""
    focal, x, y = camera.params[:3]
    camera.model = kind
    camera.params = [focal, x, y, *[0.0] * (len(camera.params_info.split(",")) - 3)]


def _median_error_px(model: Any) -> float:
    """Median over the points of the mean distance of their observations to their projections, pixels."""
    model.update_point_3d_errors()
    errors = sorted(model.point3D(point).error for point in model.point3D_ids())
    return errors[len(errors) // 2] if errors else 0.0


def _set_aside(model: Any) -> list[list[tuple[int, int]]]:
    """Take the points out of the model that only two images see, as far as other points hold both to each other.

    Returns their observations: rows of keypoints with ids of images. Other points hold two images to each other if each sees
    `HELD_BY` of them or more, and a chain of pairs that share `LINKED_BY` or more joins them.
    """
    seen = {point: model.point3D(point).track.elements for point in model.point3D_ids()}
    images = {point: sorted({element.image_id for element in elements}) for point, elements in seen.items()}
    held: Counter[int] = Counter()
    shared: Counter[tuple[int, int]] = Counter()
    for several in images.values():
        if len(several) > 2:
            held.update(several)
            shared.update(combinations(several, 2))
    group = {image: image for image in model.reg_image_ids()}

    def root(image: int) -> int:
        while group[image] != image:
            image = group[image]
        return image

    for (a, b), count in shared.items():
        if count >= LINKED_BY:
            group[root(a)] = root(b)
    aside = []
    for point, two in images.items():
        if len(two) == 2 and root(two[0]) == root(two[1]) and min(held[image] for image in two) >= HELD_BY:
            aside.append([(element.image_id, element.point2D_idx) for element in seen[point]])
            model.delete_point3D(point)
    return aside


def _bring_back(model: Any, aside: list[list[tuple[int, int]]]) -> None:
    """Add points of two images to the model again, where its poses see their keypoints (linear least squares)."""
    from veil.colmap import pycolmap

    for observations in aside:
        rows = []
        for image_id, row in observations:
            image = model.image(image_id)
            ray = image.camera.cam_from_img(image.point2D(row).xy.reshape(1, 2))[0]
            pose = image.cam_from_world().matrix()
            rows += [ray[0] * pose[2] - pose[0], ray[1] * pose[2] - pose[1]]
        point = np.linalg.svd(np.array(rows))[2][-1]
        if abs(point[3]) > 1e-12:
            track = pycolmap.Track()
            for image_id, row in observations:
                track.add_element(image_id, row)
            model.add_point3D(point[:3] / point[3], track, np.zeros(3, dtype=np.uint8))


def _pipeline(options: Any, seed: int) -> Any:
    """Options of a pipeline of COLMAP's that gives the same answer each time: seeded, and on `THREADS` threads.

    The generator of the thread is seeded too, as registration without points takes no seed.
    """
    from veil.colmap import pycolmap

    pycolmap.set_random_seed(seed)
    options.random_seed, options.num_threads = seed, THREADS
    return options


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
