"""Pages of the viewer: what their bytes say, what they hold of whom, and that no name becomes markup."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from veil.cli.remedies import phrase
from veil.errors import InputError, RangeError
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.rigid import Rigid
from veil.report.viewer.content import AttackPicture, Known, ShownImage, View, ViewLimits, view_of_scene
from veil.report.viewer.packing import mean_colors, packed_points
from veil.report.viewer.page import page
from worlds import camera, generator
from worlds.map_scenes import KINDS, planted_map
from worlds.view_pages import ReadPage, read_page

HOSTILE = "</script><script>globalThis.hacked = 1</script><img src=x onerror=alert(1)>--><!-- \u2028 & \" ' {{ 7 * 7 }} \udcff"


def matched(read: ReadPage, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Distances along the axes between the points of sightings in the page, and those of the map."""
    return np.abs(read.points[rows] - points)


def misplaced(read: ReadPage, view: View, error: float) -> list[str]:
    """Images of which a sighting is of another point, or at another place, than in the view; each names its own sightings."""
    wrong = []
    for record, image in zip(read.record["images"], view.images, strict=True):
        seen, expected = read.seen(record), image.point_rows
        if len(seen) != len(expected) or (np.abs(read.points[seen] - view.points[expected]) > error * (1 + 1e-9)).any():
            wrong.append(f"{image.name} sees other points")
        if image.lines is None and np.abs(read.keypoints(record) - image.keypoints).max() > max(record["size"]) / 131070 + 1e-3:
            wrong.append(f"{image.name} has other keypoints")
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_decode_to_the_map(kind: str) -> None:
    """Oracle: the map's own points, by way of every sighting; Python's decoder of base64. Broken twin: two points exchanged."""
    scene, _ = planted_map("viewer", kind)
    view = view_of_scene(scene, "planted")
    made = page(view)
    read = read_page(made.html)
    assert made.points == len(scene.points) == len(read.points) and made.sightings == scene.observation_count
    assert 0 < made.error < 1e-4 * scene.extent
    assert misplaced(read, view, made.error) == []
    read.arrays["places"] = read.arrays["places"].reshape(-1, 3)[::-1].copy()
    assert misplaced(read, view, made.error) != []


@pytest.mark.parametrize("kind", KINDS)
def test_poses_look_at_what_they_see(kind: str) -> None:
    """Oracle: COLMAP's own projection of the page's points by the page's poses, about the page's origin."""
    scene, _ = planted_map("viewer", kind)
    read = read_page(page(view_of_scene(scene, "planted")).html)
    for record in read.record["images"]:
        rotation = np.array(record["pose"]["rotation"]).reshape(3, 3)
        center = np.array(record["pose"]["center"]) + np.array(read.record["points"]["origin"])
        local = (read.points[read.seen(record)] - center) @ rotation.T
        pixels = np.asarray(as_colmap(scene.images[record["name"]].camera).img_from_cam(local))
        if scene.images[record["name"]].lines is None:
            assert np.abs(pixels - read.keypoints(record)).max() < 1.0
        assert record["size"] == [640, 480] and record["focal"] == [500.0, 500.0] and record["middle"] == [320.0, 240.0]


def test_lines_pass_through_the_keypoints_that_they_hide() -> None:
    """Oracle: planted keypoints, which the map from lines does not have; each is on its own line, and seldom on another."""
    scene, world = planted_map("viewer", "lines")
    read = read_page(page(view_of_scene(scene, "planted")).html)
    lines = read.arrays["lines"].reshape(-1, 3).astype(np.float64)
    for record, key in zip(read.record["images"], sorted(world.poses), strict=True):
        own = lines[record["lines"] : record["lines"] + record["count"]]
        true = np.asarray(as_colmap(world.camera).cam_from_img(world.keypoints[key].astype(np.float64)))
        off = np.abs(own @ np.hstack([true, np.ones((len(true), 1))]).T)
        assert (off.min(axis=1) < 1e-5).all() and (off < 1e-5).mean() < 0.1
    assert len(read.arrays["aligned"]) == len(lines) and 0 < read.arrays["aligned"].mean() < 1


def test_outliers_far_away_cost_no_precision() -> None:
    """Defining property: the error stays below a part of the extent of the middle points, however far others are."""
    random = generator("outliers")
    near = random.normal(size=(500, 3))
    for far in (1.0, 1e3, 1e6):
        points = np.vstack([near, [[far, 0, 0]]])
        packed = packed_points(points, 10**6)
        inside = np.isin(packed.kept, np.arange(500))
        off = np.abs(packed.decoded() - points[packed.kept])
        assert off.max() <= packed.error and off[inside].max() < 2.1e-5 * packed.extent
        assert packed.values.dtype == (np.uint16 if far == 1.0 else np.float32)


def lone(points: np.ndarray, images: tuple[ShownImage, ...] = ()) -> View:
    """A view of these points."""
    return View(title="few", kind="map", points=points, images=images, of_server=("points",))


def looking(name: str, rows: list[int], *, x: float = 0.0) -> ShownImage:
    """An image at (x, 0, -5) that looks along z."""
    return ShownImage(
        name=name,
        camera=camera(),
        cam_from_world=Rigid(rotation=np.eye(3), translation=np.array([-x, 0.0, 5.0])),
        keypoints=np.full((len(rows), 2), 100, dtype=np.float32),
        point_rows=np.array(rows, dtype=np.int64),
    )


@pytest.mark.parametrize(
    "points",
    [[], [[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]] * 4, [[0.0, 0.0, 0.0], [0.0, 0.0, 1e-12]], [[1e29, 0.0, 0.0], [0.0, 0.0, 0.0]]],
)
@pytest.mark.parametrize("cameras", [0, 1])
def test_few_and_equal_points_are_shown(points: list[list[float]], cameras: int) -> None:
    """Every number of the page is finite (its JSON allows no other), and the points are those given."""
    given = np.array(points, dtype=np.float64).reshape(-1, 3)
    images = tuple(looking(f"{k}.jpg", [0] if points else []) for k in range(cameras))
    made = page(lone(given, images))
    read = read_page(made.html)
    assert (
        len(read.points) == len(given) and read.record["reach"] > 0 and read.record["gallery"] == (not points and not cameras)
    )
    if points:
        assert np.abs(np.sort(read.points, axis=0) - np.sort(given, axis=0)).max() <= made.error


def test_points_that_are_not_finite_are_left_out_and_counted() -> None:
    points = np.array([[0.0, 0, 0], [np.nan, 0, 0], [1, 0, 0], [0, np.inf, 0], [1e300, 0, 0]])
    made = page(lone(points, (looking("a.jpg", [0, 1, 2, 3, 4, -1]),)))
    read = read_page(made.html)
    assert made.not_finite == 3 and made.points == 2 and sorted(read.points[:, 0]) == [0.0, 1.0]
    seen = read.seen(read.record["images"][0])
    assert (seen[[1, 3, 4, 5]] == -1).all() and read.points[seen[[0, 2]], 0].tolist() == [0.0, 1.0]
    assert any("3 points are not finite" in text for text in read.record["facts"]["server"])


def test_a_pose_that_is_not_finite_is_left_out() -> None:
    """Of two images, the page draws the one whose pose is a pose, and names the other one."""
    spoilt = replace(looking("b.jpg", [0]), cam_from_world=Rigid(rotation=np.full((3, 3), np.nan), translation=np.zeros(3)))
    first, second = read_page(page(lone(np.eye(3), (looking("a.jpg", [0]), spoilt))).html).record["images"]
    assert first["pose"] is not None and second["pose"] is None and "not finite" in second["said"][-1]


def test_a_page_is_bounded_and_says_what_it_lacks() -> None:
    """Counts by hand; the first points of a page are an even choice: their mean is that of all within four deviations."""
    random = generator("many")
    points = random.random((5000, 3))
    images = tuple(looking(f"{k:02d}.jpg", list(range(1000)), x=k) for k in range(20))
    pictures = {image.name: Known(photograph=np.zeros((30, 40, 3), dtype=np.uint8)) for image in images}
    limits = ViewLimits(points=1000, sightings=2000, images=10, pictures=3, picture_px=8)
    made = page(replace(lone(points, images), known=pictures), limits)
    read = read_page(made.html)
    assert (made.points, made.images, made.photographs) == (1000, 10, 3) and made.sightings == 2000
    assert made.sightings_left_out == 8000 and len(read.record["pictures"]) == 3
    told = " ".join(text for texts in read.record["facts"].values() for text in texts)
    for said in ("1,000 of 5,000 points", "10 of 20 images", "8,000 sightings are left out", "7 pictures are left out"):
        assert said in told
    spread = np.sqrt(1 / 12 / 100)
    assert np.abs(read.points[:100].mean(axis=0) - 0.5).max() < 4 * spread
    for name in ("points", "sightings", "images", "pictures", "picture_px"):
        with pytest.raises(RangeError, match=name):
            ViewLimits(**{name: 0})


def test_a_view_refuses_what_does_not_belong_together() -> None:
    with pytest.raises(InputError, match="3 positions and 2 points"):
        replace(looking("a.jpg", [0, 1, 2]), point_rows=np.array([0, 1]))
    scene, _ = planted_map("viewer", "lines")
    image = view_of_scene(scene, "planted").images[0]
    with pytest.raises(InputError, match="lines"):
        replace(image, point_rows=image.point_rows[:-1], keypoints=image.keypoints[:-1])


def allowed(read: ReadPage) -> bool:
    """Whether the policy allows the page's own script and style, and nothing else but pictures that lie in it."""
    rules = dict(part.strip().split(" ", 1) for part in read.policy.split(";"))
    own = {
        f"{kind}-src": " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts
        )
        for kind, texts in (("script", read.scripts), ("style", read.styles))
    }
    wanted = {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'", **own}
    return rules == wanted


@pytest.mark.parametrize("hostile", [False, True])
def test_names_never_become_markup(hostile: bool) -> None:
    """Oracle: Python's parser finds the elements of a page with harmless names, and the policy's hash is of its one script.

    Broken twin: the name put into the page as it is.
    """
    scene, _ = planted_map("viewer")
    name = HOSTILE if hostile else "plain"
    view = view_of_scene(scene, name)
    first, *others = view.images
    view = replace(
        view,
        kind=name,
        of_server=[name],
        images=[replace(first, name=name, told=(name,)), *others],
        recovered={name: [AttackPicture(title=name, rgb=np.zeros((4, 4, 3), dtype=np.uint8))]},
    )
    html = page(view).html
    read = read_page(html.encode("utf-8", "strict").decode())
    plain = read_page(page(view_of_scene(scene, "plain")).html)
    assert [tag for tag, _ in read.tags] == [*[tag for tag, _ in plain.tags][:-1], "script", "script"] or not hostile
    assert allowed(read) and allowed(plain) and len(read.scripts) == 1
    assert read.record["images"][0]["name"] == name and read.record["facts"]["server"][0] == name
    assert not any(key.startswith("on") or key == "style" for _, attributes in read.tags for key in attributes)
    if hostile:
        broken = read_page(html.replace("&lt;/script&gt;", "</script>").replace("&lt;script&gt;", "<script>"))
        assert not allowed(broken)


def test_a_page_names_no_other_place() -> None:
    """Nothing in it could be fetched: no address, no element that loads, no way for a script to ask for anything."""
    scene, _ = planted_map("viewer")
    read = read_page(page(view_of_scene(scene, "planted")).html)
    text = " ".join([*read.scripts, *read.styles])
    for word in (
        "http:",
        "https:",
        "//cdn",
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
        "import(",
        "url(",
        "sendBeacon",
        "innerHTML",
        "eval(",
    ):
        assert word not in text.replace("http://www.w3.org", ""), word
    loading = [
        (tag, attributes) for tag, attributes in read.tags if {"src", "href", "action", "srcset", "poster"} & set(attributes)
    ]
    assert loading == [("link", {"rel": "icon", "href": "data:,"})]


def test_the_device_and_attacks_enter_only_when_they_are_given() -> None:
    """Without them the page holds five arrays at most and no picture; with them it holds the photograph, and says so."""
    scene, _ = planted_map("viewer", "subspaces")
    view = view_of_scene(scene, "planted")
    bare = read_page(page(view).html)
    assert set(bare.arrays) == {"places", "keypoints", "seen"} and bare.record["pictures"] == []
    asks_device = "Nothing that only the device knows is in this page; give view_map(device=...)."
    asks_attack = "No attack is in this page; give view_map(report=...)."
    assert bare.record["facts"]["device"] == [asks_device] and bare.record["facts"]["attack"] == [asks_attack]
    assert "give photographs and features.h5 with --images." in page(view, say=phrase).html
    assert all(image["photograph"] is None and image["knownCount"] == 0 for image in bare.record["images"])
    name = view.images[1].name
    red = np.full((48, 64, 3), (200, 0, 0), dtype=np.uint8)
    blue = np.full((16, 16, 3), (0, 0, 200), dtype=np.uint8)
    made = page(
        replace(
            view,
            known={name: Known(photograph=red, keypoints=np.array([[1.0, 2.0]]))},
            recovered={name: [AttackPicture(title="by an attack", rgb=blue)]},
        )
    )
    full = read_page(made.html)
    assert (
        set(full.arrays) == {"places", "keypoints", "seen", "known", "device", "attack"} and len(full.record["pictures"]) == 2
    )
    assert made.photographs == made.true_positions == made.recovered == 1
    assert "holds the photographs of 1" in full.record["facts"]["device"][0]
    device, attack = (full.arrays[key].reshape(-1, 4) for key in ("device", "attack"))
    seen = np.unique(full.seen(full.record["images"][1]))
    assert sorted(np.flatnonzero(device[:, 3])) == seen.tolist()  # colored where that image sees, and nowhere else
    assert (device[seen] == (200, 0, 0, 255)).all() and (attack[seen, 2] > 190).all()


def test_colors_are_those_at_the_keypoints() -> None:
    """Planted truth: the left half of a picture is red, the right one green; a square picture covers the middle alone."""
    halves = np.zeros((480, 640, 3), dtype=np.uint8)
    halves[:, :320, 0] = halves[:, 320:, 1] = 255
    image = replace(
        looking("a.jpg", [0, 1, 2, -1]), keypoints=np.array([[5, 5], [600, 400], [200, 240], [400, 9]], dtype=np.float32)
    )
    view = lone(np.eye(3), (image,))
    assert mean_colors(view, {"a.jpg": halves}).tolist() == [[255, 0, 0, 255], [0, 255, 0, 255], [255, 0, 0, 255]]
    square = np.full((256, 256, 3), 7, dtype=np.uint8)
    assert mean_colors(view, {"a.jpg": square}).tolist() == [[0] * 4, [0] * 4, [7, 7, 7, 255]]


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 1e4])
def test_uncertainty_keeps_its_size(scale: float) -> None:
    """Oracle: the covariance itself, which the axes of the page multiply to; it is enlarged by a round number that is told."""
    random = generator("covariance")
    root = scale * random.normal(size=(3, 3))
    image = replace(looking("q", [0]), is_query=True, center_covariance=root @ root.T)
    read = read_page(page(lone(random.normal(size=(100, 3)), (image,))).html)
    axes = np.array(read.record["images"][0]["uncertainty"]).reshape(3, 3)
    assert np.allclose(axes.T @ axes, root @ root.T, rtol=1e-6, atol=1e-9 * scale**2)
    longest = 2.8 * np.linalg.norm(axes, axis=1).max() * read.record["enlarged"]
    assert read.record["enlarged"] in {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000}
    assert scale < 1e-5 or scale >= 1 or 0.3 * read.record["pyramid"] < longest < 1.1 * read.record["pyramid"]
    spoilt = replace(image, center_covariance=np.full((3, 3), np.nan))
    assert read_page(page(lone(np.eye(3), (spoilt,))).html).record["images"][0]["uncertainty"] is None


def test_two_pages_of_one_map_have_the_same_bytes() -> None:
    scene, _ = planted_map("viewer")
    assert page(view_of_scene(scene, "a")).html == page(view_of_scene(scene, "a")).html


def test_a_lens_keeps_its_middle() -> None:
    """Defining property: principal point and both focal lengths of models with one focal length and with two."""
    for model, params, focal in (
        ("SIMPLE_RADIAL", (700.0, 321.0, 239.0, 0.1), [700.0, 700.0]),
        ("OPENCV", (700.0, 710.0, 321.0, 239.0, 0.1, 0.0, 0.0, 0.0), [700.0, 710.0]),
    ):
        lens = Camera(model=model, width_px=640, height_px=480, params=params)
        record = read_page(page(lone(np.eye(3), (replace(looking("a", [0]), camera=lens),))).html).record["images"][0]
        assert record["focal"] == focal and record["middle"] == [321.0, 239.0]
