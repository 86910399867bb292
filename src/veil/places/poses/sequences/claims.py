"""Claims and contests of poses of a rig: what the judge asks of one camera is asked of each frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.views import MapViews
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.evidence import COIN, LEAST_FOR_CALIBRATION, Doubt, ShownPoints, coin, pictured, weigh
from veil.places.poses.joint import settled
from veil.places.poses.judge import BY_CHANCE, Claim, PairContest, WeighedPose, counted, judge, rivals
from veil.places.poses.matches import Estimate
from veil.places.poses.sequences.frames import MatchedFrames


@dataclass(frozen=True, kw_only=True, eq=False)
class FramesClaim(Claim):
    """The best pose of a rig. A frame with enough inliers that looks pictured contradicts it, as one camera took all.

    `doubts` compare two cameras of each frame where the pairs are not all that tells.
    """

    doubts: Sequence[Doubt] = ()

    def is_pictured(self, known: Estimate) -> bool:
        """Whether one of the frames more likely shows a photograph of the place."""
        matched = self.matched
        assert isinstance(matched, MatchedFrames)
        for frame in range(len(matched.frames)):
            evidence = matched.evidence_in(frame, self.evidence)
            if len(evidence.rows) < LEAST_FOR_CALIBRATION:
                continue
            pairs, _ = matched.in_frame(frame)
            doubt = self.doubts[frame] if self.doubts else None
            if pictured(pairs, matched.frames.estimate_in(frame, known), evidence, self.views, self.observed, doubt):
                return True
        return False


@dataclass(frozen=True, kw_only=True, eq=False)
class FramesContest(PairContest):
    """The contest of poses of a rig: what counts against one of them is counted frame by frame."""

    matched: MatchedFrames
    _in_frames: dict[tuple[int, int], tuple[WeighedPose, ShownPoints]] = field(default_factory=dict, init=False)

    def clearly_better(self, first: WeighedPose, second: WeighedPose) -> bool:
        """Whether the first pose has clearly more inliers that count against the second, of all frames together."""
        own = sum(self._counted(frame, first, second) for frame in range(len(self.matched.frames)))
        other = sum(self._counted(frame, second, first) for frame in range(len(self.matched.frames)))
        return coin(own, other) <= COIN

    def _counted(self, frame: int, own: WeighedPose, other: WeighedPose) -> int:
        pairs, _ = self.matched.in_frame(frame)
        evidence = [self.matched.evidence_in(frame, one.evidence) for one in (own, other)]
        return counted(pairs, evidence[0], evidence[1], self._shown_in(frame, own), self._shown_in(frame, other))

    def _shown_in(self, frame: int, pose: WeighedPose) -> ShownPoints:
        """Points that the camera of a frame shows at a pose of the rig."""
        if (id(pose), frame) not in self._in_frames:
            pairs, _ = self.matched.in_frame(frame)
            evidence = self.matched.evidence_in(frame, pose.evidence)
            estimate = self.matched.frames.estimate_in(frame, pose.estimate)
            shown = ShownPoints.by(pairs, estimate, evidence, self.views, self.observed)
            self._in_frames[id(pose), frame] = pose, shown
        return self._in_frames[id(pose), frame][1]


def judged_frames(
    matched: MatchedFrames, views: MapViews | None, limits: Acceptance, best: WeighedPose | None
) -> Localization | NoPose:
    """The answer that pairs of several frames give, or why there is none; `best` is their best pose.

    The answer's pose is that of the rig, and its camera that of the first frame.
    """
    count = len(matched.keypoint_rows)
    if count < limits.min_inliers:
        return NoPose(reason=f"only {count} features match the map; is it of this place?", correspondences=count)
    if best is None:
        return NoPose(reason=f"no pose explains the {count} matches; is the map of this place?", correspondences=count)
    claim = FramesClaim(
        estimate=best.estimate,
        evidence=best.evidence,
        matched=matched,
        views=views,
        observed=None,
        unchecked=lambda: weigh(matched, best.estimate, None),
        against=lambda _: None,
        by_chance=BY_CHANCE,
        correspondences=count,
        count=count,
    )
    contest = FramesContest(matched=matched, views=views)
    return judge(claim, lambda: rivals(contest, claim, limits).equal, limits)


def best_of_frames(matched: MatchedFrames, estimate: Estimate | None, views: MapViews | None) -> WeighedPose | None:
    """A pose of a search after the fit of pose and focal length together, and its evidence; None where there is none."""
    if estimate is None:
        return None
    estimate = settled(matched, estimate)
    return WeighedPose(estimate=estimate, evidence=weigh(matched, estimate, views))
