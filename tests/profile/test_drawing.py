"""Pictures in HTML: where marks, names and lines are, what they say, and what is left out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from cudakit.profile.timeline import EMULATOR, Span, dependencies, timelines
from cudakit.streams.witnesses import Kind
from cudakit.types.shown import Drawing, html

SVG = "{http://www.w3.org/2000/svg}"
#: The first pixel of time, and how many there are: a span list that lasts so many ms has a pixel a ms.
LEFT, PIXELS = 170, 730


def span(start_ms: float, end_ms: float, stream: str = "s", kind: Kind = "kernel", name: str = "k") -> Span:
    return Span(kind, name, stream, start_ms, end_ms, 0, "GPU 0")


class Picture:
    """The parts of a drawing's HTML."""

    def __init__(self, title: str, drawn: str) -> None:
        root = ElementTree.fromstring(html(title, Drawing(lambda: drawn)))
        self.title = root[0].text
        self.tags = [each.tag.removeprefix(SVG) for each in root]
        self.notes = ["".join(each.itertext()) for each in root.findall("div")]
        self.colours = [(each.attrib["style"], (each.tail or "").strip()) for each in root.iter("span")]
        self.pictures = list(root.iter(f"{SVG}svg"))

    @property
    def marks(self) -> list[tuple[float, float, float]]:
        """Left edge, top, width of each rectangle."""
        return [
            (float(each.attrib["x"]), float(each.attrib["y"]), float(each.attrib["width"]))
            for each in self.pictures[0].iter(f"{SVG}rect")
        ]

    @property
    def titles(self) -> list[str]:
        return [each.text or "" for each in self.pictures[0].iter(f"{SVG}title")]

    @property
    def texts(self) -> list[tuple[str, float, float, str, str]]:
        """Text, x, y, anchor and colour of each."""
        return [
            (t.text or "", float(t.attrib["x"]), float(t.attrib["y"]), t.attrib["text-anchor"], t.attrib["fill"])
            for t in self.pictures[0].iter(f"{SVG}text")
        ]


def test_a_row_a_stream_and_a_mark_a_span() -> None:
    spans = [
        Span("copy", "to_device", "in", 10.0, 110.0, 2_000_000, "GPU 0"),
        span(110, 740, "compute", name="blur<float>"),
        span(10, 70, "compute", name="narrow"),
        span(70, 131, "in", name="a name that is cut"),
    ]
    drawn = Picture("a & b", timelines(spans))
    assert drawn.title == "a & b"
    assert drawn.marks == [(170, 3, 100), (230, 3, 61), (170, 25, 60), (270, 25, 630)]
    rects = list(drawn.pictures[0].iter(f"{SVG}rect"))
    assert [(r.attrib["height"], r.attrib["fill"]) for r in rects] == [
        *[("16", "#ef8636"), ("16", "#3b75af")],
        *[("16", "#3b75af"), ("16", "#3b75af")],
    ]
    assert drawn.titles == [
        "to_device (copy): 100.000 ms from 10.000 ms, 2,000,000 bytes",
        "a name that is cut (kernel): 61.000 ms from 70.000 ms",
        "narrow (kernel): 60.000 ms from 10.000 ms",
        "blur<float> (kernel): 630.000 ms from 110.000 ms",
    ]
    assert drawn.texts == [
        ("in  17%", 162, 15, "end", "currentColor"),
        ("to_device", 220, 15, "middle", "white"),
        ("a name t", 260.5, 15, "middle", "white"),
        ("compute  95%", 162, 37, "end", "currentColor"),
        ("blur<float>", 585, 37, "middle", "white"),
        ("10.000 ms", LEFT, 56, "start", "currentColor"),
        ("740.000 ms", LEFT + PIXELS, 56, "end", "currentColor"),
    ]
    assert drawn.colours == [("color: #ef8636", "copy"), ("color: #3b75af", "kernel")]
    assert drawn.notes[1] == "critical: blur<float>, busy for 630.000 ms of 730.000 ms (86%), on compute"
    (picture,) = drawn.pictures
    assert (picture.attrib["viewBox"], picture.attrib["width"]) == ("0 0 910 62", "100%")
    assert picture.attrib["style"] == "max-width: 910px"


def test_narrow_neighbours_of_a_kind_are_one_mark() -> None:
    whole = span(0, PIXELS, "all")
    spans = [
        whole,
        span(0.6, 0.9, name="second"),
        span(0.25, 0.5, name="first"),
        span(1.0, 1.25, name="third"),
        span(20, 20.5, name="outer"),
        span(20, 20.25, name="inner"),
        span(30, 30.25),
        span(30.3, 30.5, kind="copy"),
        span(40, 41),
        span(40.5, 41.0),
        span(50, 50.25),
        span(50.5, 51.0),
    ]
    drawn = Picture("t", timelines(spans))
    narrow = [(round(x - LEFT, 1), width) for x, y, width in drawn.marks if y == 25]
    # A mark reaches to the end of the last span in it. Its right edge is less than a pixel from its left one.
    assert narrow == [
        (0.2, 0.7),
        (1, 0.5),
        (20, 0.5),
        (30, 0.5),
        (30.3, 0.5),
        (40, 1),
        (40.5, 0.5),
        (50, 0.5),
        (50.5, 0.5),
    ]
    assert drawn.titles[1] == "2 works, the first: first"
    assert drawn.titles[3] == "2 works, the first: outer"


@pytest.mark.parametrize(("count", "parts"), [(1000, 2), (1001, 1)])
def test_of_many_spans_wider_neighbours_are_one_mark(count: int, parts: int) -> None:
    spans = [span(0, PIXELS, "all"), span(100, 101, "b"), span(101, 102.125, "b")]
    spans += [span(110, 111, "b"), span(111, 112.25, "b")]
    spans += [span(200, 200.5, "c")] * (count - len(spans))
    drawn = Picture("t", timelines(spans))
    assert len([x for x, y, _ in drawn.marks if y == 25]) == parts + 2
    assert drawn.titles[-1] == f"{count - 5} works, the first: k"


def test_of_many_spans_on_one_stream_neighbours_of_a_pixel_are_one_mark() -> None:
    spans = [span(0, 0.5)] * 998 + [span(100, 100.25), span(100.25, 100.9375), span(100.9375, PIXELS)]
    assert [round(x - LEFT, 1) for x, _, _ in Picture("t", timelines(spans)).marks] == [0, 100, 100.9]


@pytest.mark.parametrize(("streams", "more"), [(40, ""), (41, "; 1 more streams")])
def test_of_many_streams_the_first_are_drawn(streams: int, more: str) -> None:
    drawn = Picture("t", timelines([span(0, 4, f"s{number}") for number in range(streams)]))
    assert len(drawn.marks) == 40
    assert drawn.notes[1] == f"critical: k, busy for 4.000 ms of 4.000 ms (100%), on {streams} streams{more}"


def test_long_names_of_streams_are_cut() -> None:
    names = ["n" * 20, "n" * 21, "<&>"]
    texts = [text for text, *_ in Picture("t", timelines([span(0, 1, name) for name in names])).texts]
    assert texts[::2][:3] == [f"{'n' * 20}  100%", f"{'n' * 21}  10…", "<&>  100%"]


def test_each_clock_has_a_picture_and_no_time_has_one_too() -> None:
    drawn = Picture("t", timelines([span(5, 5), Span("kernel", "k", "s", 0.0, 0.02, 0, EMULATOR)]))
    steps, timed = drawn.pictures
    assert [each.text for each in steps.iter(f"{SVG}text")] == ["s  100%", "k", "0 steps", "20 steps"]
    assert [each.text for each in timed.iter(f"{SVG}text")] == ["s  0%", "5.000 ms", "5.000 ms"]
    assert [(r.attrib["x"], r.attrib["width"]) for r in timed.iter(f"{SVG}rect")] == [("170.0", "0.5")]
    assert Picture("nothing", timelines([])).pictures == []


Found = tuple[str, str, tuple[str, str], tuple[str, str]]


def found(status: str, first: tuple[str, str], second: tuple[str, str]) -> Found:
    return status, f"{status} <of> {first[1]}", first, second


def test_a_line_for_what_must_wait() -> None:
    order = [found("missing", ("a", "x" * 30), ("b", "add")), found("put in", ("b", "add"), ("c", "y" * 27))]
    drawn = Picture("two", dependencies(order))
    assert drawn.title == "two"
    assert drawn.titles == [f"missing <of> {'x' * 30}", "put in <of> add"]
    (picture,) = drawn.pictures
    assert picture.attrib["viewBox"] == "0 0 910 132"
    # From a dot at a quarter of its part of the width to a square at three quarters.
    lines = [{k: float(v) for k, v in each.attrib.items()} for each in picture.iter(f"{SVG}line")]
    assert [(line["x1"], line["y1"], line["x2"], line["y2"]) for line in lines] == [
        (261.2, 33, 443.8, 77),
        (626.2, 77, 808.8, 121),
    ]
    assert [(d.attrib["cx"], d.attrib["cy"], d.attrib["r"]) for d in picture.iter(f"{SVG}circle")] == [
        ("261.2", "33.0", "3"),
        ("626.2", "77.0", "3"),
    ]
    assert drawn.marks == [(439.8, 73, 8), (804.8, 117, 8)]
    assert [group.attrib["fill"] for group in picture.iter(f"{SVG}g")] == ["#c03d3e", "#519e3e"]
    assert drawn.texts == [
        *[(name, 162, y, "end", "currentColor") for name, y in (("a", 37), ("b", 81), ("c", 125))],
        ("x" * 26, 261.2, 25, "middle", "currentColor"),
        ("add", 443.8, 69, "middle", "currentColor"),
        ("add", 626.2, 69, "middle", "currentColor"),
        ("y" * 26, 808.8, 113, "middle", "currentColor"),
    ]
    assert drawn.notes == ["■ missing ■ put in"]
    assert drawn.colours == [("color: #c03d3e", "missing"), ("color: #519e3e", "put in")]


def test_names_stand_where_there_is_room() -> None:
    def names(count: int) -> list[str]:
        order = [found("implied", ("a", "123456789"), ("b", "987654321"))] * count
        return [text for text, *_ in Picture("t", dependencies(order)).texts][2:]

    assert names(6) == ["12345678", "98765432"] * 6
    assert names(7) == []


@pytest.mark.parametrize(("count", "notes"), [(25, []), (26, ["and 1 more"])])
def test_of_many_dependencies_the_first_are_drawn(count: int, notes: list[str]) -> None:
    order = [found("implied", ("a", "k"), ("b", "k"))] * (count - 1) + [found("unseen", ("c", "k"), ("a", "k"))]
    drawn = Picture("t", dependencies(order))
    assert len(drawn.marks) == 25
    assert drawn.notes[1:] == notes
    assert drawn.tags == ["b", "div", "svg", *["div"] * len(notes)]
    assert drawn.colours == [("color: #888888", "implied"), ("color: #ef8636", "unseen")]


def test_what_is_said_of_a_dependency_is_cut_late() -> None:
    long = "missing", "w" * 501, ("a", "k"), ("b", "k")
    assert Picture("t", dependencies([long])).titles == ["w" * 499 + "…"]


def test_no_dependencies_are_no_picture() -> None:
    drawn = Picture("none", dependencies([]))
    assert (drawn.title, drawn.notes, drawn.pictures) == ("none", [""], [])
