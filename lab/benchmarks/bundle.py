"""Time of bundle adjustment from lines, compared with Ceres on the same problem in the same run.

    python lab/benchmarks/bundle.py [--cameras 30 150] [--points 5800 91000] [--json FILE]

Cameras on a circle see a shell of points, each through lines of random direction (0.3 px of noise); two cameras are constant.
Ceres runs through pyceres with pycolmap's residuals (tests/worlds/ceres_lines.py), from the same state, with the same robust
loss, tolerance and number of threads. Nothing is timed unless the costs agree, at the start to 1e-6 relative, the exact ones of
both solutions to 1e-3, and their cameras to 0.001 (points lie 4 to 8 from their cameras) and 0.001 degrees. Times are the best
of `--repeats`; a first call of veil, which compiles or loads what was compiled, is not timed. Costs and camera errors (the
median distance from the truth) are veil's and Ceres', in this order.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil.geometry.bundle.adjustment import Adjusted, AdjustOptions, LineProblem, adjust
from worlds.ceres_lines import CeresAdjusted, adjust_by_ceres
from worlds.line_problems import disturbed, first_two, ring, robust_cost

AGREE_COST, AGREE_LENGTH, AGREE_DEG = 1e-3, 1e-3, 1e-3


@dataclass(frozen=True, kw_only=True)
class Row:
    """One problem, solved by veil and by Ceres: times, steps, exact costs, and the cameras' median distance from the truth."""

    cameras: int
    points: int
    observations: int
    initial_cost: float
    veil_s: float
    veil_steps: int
    veil_cost: float
    veil_error: float
    ceres_build_s: float
    ceres_solve_s: float
    ceres_steps: int
    ceres_cost: float
    ceres_error: float

    @property
    def ratio(self) -> float:
        """Ratio of Ceres' time, to build and to solve, to veil's whole time."""
        return (self.ceres_build_s + self.ceres_solve_s) / self.veil_s


def main() -> int:
    """Print one line a problem; exit code 1 if the solutions disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cameras", type=int, nargs="+", default=[30, 150], help="at most 150")
    parser.add_argument("--points", type=int, nargs="+", default=[5800, 91000])
    parser.add_argument("--size", type=float, default=0.005, help="disturbance of the start, radians and units of length")
    parser.add_argument("--loss-px", type=float, default=2.0)
    parser.add_argument("--tol", type=float, default=1e-9)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--solver", default="DENSE_SCHUR", choices=["DENSE_SCHUR", "SPARSE_SCHUR"])
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    if len(arguments.cameras) != len(arguments.points):
        parser.error("--cameras and --points must be equally many")
    if max(arguments.cameras) > 150:
        parser.error("the circle has room for 150 cameras")
    rows, sizes = [], list(zip(arguments.cameras, arguments.points, strict=True))
    with tqdm(total=len(sizes) * (2 + 2 * arguments.repeats), disable=None) as bar:
        for cameras, points in sizes:
            row = _run(cameras, points, arguments, bar)
            if isinstance(row, str):
                bar.close()
                print(f"{cameras} cameras: red, {row}; not timed")
                return 1
            rows.append(row)
    _show(rows, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=1) + "\n")
    return 0


def _run(cameras: int, points: int, arguments: argparse.Namespace, bar: tqdm) -> Row | str:
    """The timed row of one problem, or the text that says in what the two solutions disagree."""
    bar.set_description(f"{cameras} cameras: plant")
    truth = ring("benchmark", cameras=cameras, points=points)
    start, constant = disturbed(truth, "benchmark", arguments.size), first_two(truth)
    options = AdjustOptions(loss_px=arguments.loss_px, tol=arguments.tol, max_iterations=100, threads=arguments.threads)
    adjust(start, constant=constant, options=options)  # compiles
    bar.update(2)
    seconds, adjusted, others = [], [], []
    for _ in range(arguments.repeats):
        bar.set_description(f"{cameras} cameras: veil")
        begin = time.perf_counter()
        adjusted.append(adjust(start, constant=constant, options=options))
        seconds.append(time.perf_counter() - begin)
        bar.update()
        bar.set_description(f"{cameras} cameras: Ceres")
        others.append(
            adjust_by_ceres(
                start,
                constant=constant,
                loss_px=arguments.loss_px,
                tol=arguments.tol,
                max_iterations=100,
                threads=arguments.threads,
                solver=arguments.solver,
            )
        )
        bar.update()
        if trouble := _disagreement(adjusted[-1], others[-1], arguments.loss_px):
            return trouble
    ceres = min(others, key=lambda each: each.build_s + each.solve_s)
    return Row(
        cameras=cameras,
        points=len(truth.points),
        observations=len(truth.lines),
        initial_cost=adjusted[0].initial_cost,
        veil_s=min(seconds),
        veil_steps=adjusted[0].iterations,
        veil_cost=robust_cost(adjusted[0].problem, arguments.loss_px),
        veil_error=_error(adjusted[0].problem, truth),
        ceres_build_s=ceres.build_s,
        ceres_solve_s=ceres.solve_s,
        ceres_steps=ceres.iterations,
        ceres_cost=robust_cost(ceres.problem, arguments.loss_px),
        ceres_error=_error(ceres.problem, truth),
    )


def _disagreement(veil: Adjusted, ceres: CeresAdjusted, loss_px: float) -> str | None:
    """The first disagreement of costs or cameras beyond the limits, as a text, or None."""
    if not abs(veil.initial_cost - ceres.initial_cost) <= 1e-6 * veil.initial_cost:
        return f"costs at the start {veil.initial_cost:.9g} and {ceres.initial_cost:.9g}"
    costs = [robust_cost(each.problem, loss_px) for each in (veil, ceres)]
    if not abs(costs[0] - costs[1]) <= AGREE_COST * costs[1]:
        return f"costs {costs[0]:.6g} and {costs[1]:.6g}"
    apart = np.linalg.norm(_centers(veil.problem) - _centers(ceres.problem), axis=1).max()
    turn = Rotation.from_matrix(veil.problem.rotations @ ceres.problem.rotations.transpose(0, 2, 1)).magnitude().max()
    if not (apart <= AGREE_LENGTH and np.degrees(turn) <= AGREE_DEG):
        return f"cameras are {apart:.2g} and {np.degrees(turn):.2g} degrees apart"
    return None


def _centers(problem: LineProblem) -> np.ndarray:
    return -np.einsum("nij,ni->nj", problem.rotations, problem.translations)


def _error(problem: LineProblem, truth: LineProblem) -> float:
    return float(np.median(np.linalg.norm(_centers(problem) - _centers(truth), axis=1)))


def _show(rows: list[Row], arguments: argparse.Namespace) -> None:
    print(
        f"Cauchy {arguments.loss_px} px, tolerance {arguments.tol:g}, {arguments.threads} threads of {os.cpu_count()} cores, "
        f"Ceres {arguments.solver}, best of {arguments.repeats}\n"
    )
    print(
        "| cameras | points | lines | veil | Ceres build + solve | ratio | steps | cost at start | final costs | camera error |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(
            f"| {row.cameras} | {row.points:,} | {row.observations:,} | {row.veil_s:.3f} s "
            f"| {row.ceres_build_s:.2f} + {row.ceres_solve_s:.2f} s | {row.ratio:.1f} "
            f"| {row.veil_steps} and {row.ceres_steps} | {row.initial_cost:.6g} | {row.veil_cost:.8g} and {row.ceres_cost:.8g} "
            f"| {row.veil_error:.4f} and {row.ceres_error:.4f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
