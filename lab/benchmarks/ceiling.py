"""Upper bound on the images that mapping from lines registers: poses are the reference's, evidence comes from the lines.

    python lab/benchmarks/weak.py strecha/castle-P19 --shared 100 50 --methods lines ceiling

From the quad of images that has most tracks, images enter at their true poses as long as the lines that agree with points of
the images before are beyond chance, and stay as `veil.places.maps.lines` keeps them. No search is made, nothing is confused and
nothing drifts: a mapper that decides by the same evidence registers no more. Images that are left out are listed with the
number of lines that agree with their true poses.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from veil.places.maps.lines.problem import MappingProblem, mapping_problem
from veil.places.maps.lines.reconstruction import Reconstruction, empty_reconstruction, without_images
from veil.places.maps.lines.registration import Candidate, LineMapOptions, contradicted, evidence, sighting, triangulate
from veil.places.maps.lines.tracks import candidate_quads
from veil.trials.line_maps import MappableScene, line_views, subject_graph
from veil.trials.reconstruction_run import Run


def ceiling(subject: MappableScene, seed: int) -> Run:
    """Run of the upper bound on one scene: the images that enter and stay."""
    options, start = LineMapOptions(), time.perf_counter()
    views = line_views(subject, seed=seed, gravity_noise_deg=0.0)
    problem = mapping_problem(views, subject_graph(subject))
    truth = [subject.reference[name] for name in problem.tracks.names]
    known = [view.lines.gravity is not None for view in problem.views]
    quads = candidate_quads(problem.tracks, problem.aligned, with_gravity=known, limit=1, min_tracks=options.seed.min_tracks)
    reconstruction = empty_reconstruction(problem)
    for image in quads[0].images if quads else ():
        reconstruction = reconstruction.with_pose(image, truth[image])
    reconstruction = triangulate(problem, reconstruction, options.point_error_px, options)
    while (image := _next(problem, reconstruction, truth, options)) is not None:
        reconstruction = triangulate(problem, reconstruction.with_pose(image, truth[image]), options.point_error_px, options)
    outside = np.flatnonzero(~reconstruction.registered).tolist()
    left = [f"{image}: {_agreeing(problem, reconstruction, image, truth, options)}" for image in outside]
    out = contradicted(problem, reconstruction, options)
    reconstruction = without_images(problem, reconstruction, out)
    return Run(
        scene=subject.name,
        method="ceiling",
        seed=seed,
        gravity_noise_deg=0.0,
        total=len(views),
        gravity_is_measured=subject.gravity_is_measured,
        seconds={"map": time.perf_counter() - start},
        cam_from_world={name: truth[i] for i, name in enumerate(problem.tracks.names) if reconstruction.registered[i]},
        reason=f"in and out again: {sorted(out)}; never in, lines that agree: {', '.join(left)}",
    )


def _next(problem: MappingProblem, reconstruction: Reconstruction, truth: list, options: LineMapOptions) -> int | None:
    """Next image to register: the one most beyond chance on points of four lines, or else of three; None if none is."""
    for limits in (options, replace(options, min_lines=3)):
        source = triangulate(problem, reconstruction, options.point_error_px, limits)
        best, chosen = options.max_log10_nfa, None
        for image in np.flatnonzero(~reconstruction.registered).tolist():
            seen, sources = sighting(problem, source, image)
            if len(seen.rows) < options.min_registration_inliers:
                continue
            inliers = seen.resection.residuals(truth[image]) < options.resection_error_px
            held = Candidate(pose=truth[image], inliers=inliers, score=float(inliers.sum()))
            support = evidence(problem, seen, sources, held, options)
            if support.inliers >= options.min_registration_inliers and support.log10_nfa <= best:
                best, chosen = support.log10_nfa, image
        if chosen is not None:
            return chosen
    return None


def _agreeing(problem: MappingProblem, reconstruction: Reconstruction, image: int, truth: list, options: LineMapOptions) -> str:
    source = triangulate(problem, reconstruction, options.point_error_px, replace(options, min_lines=3))
    seen, _ = sighting(problem, source, image)
    agreeing = int((seen.resection.residuals(truth[image]) < options.resection_error_px).sum()) if len(seen.rows) else 0
    return f"{agreeing} of {len(seen.rows)}"
