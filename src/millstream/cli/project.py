"""The files of a new project: those of the example that it starts from, a test and a README."""

from __future__ import annotations

from textwrap import dedent, fill

from millstream.examples.example import Example

_TEST = '''\
"""The whole pipeline in a test: generated events in, what it finds out. No broker, no Spark, seconds.

Change first: nothing. When the pipeline finds other things, say in check.py what is right.
"""

from pathlib import Path

from check import check
from generate import Generator

from millstream.examples.trial import trial

PIPELINE = Path(__file__).with_name("pipeline.py")
RESULTS = {results!r}  # the topics that check.py looks at
SECONDS = {seconds!r}  # of events


def test_what_was_planted_is_found_and_nothing_else():
    generator = Generator(seed=7, seconds=SECONDS)
    scores = check(generator.planted, trial(PIPELINE, generator, RESULTS))
    planted, found = sum(score.planted for score in scores), sum(score.found for score in scores)
    given, right = sum(score.given for score in scores), sum(score.right for score in scores)
    assert planted > 0
    assert found >= {recall!r} * planted, scores
    assert right >= {precision!r} * given, scores


def test_the_same_seed_gives_the_same_events():
    one, other = (list(Generator(seed=7, seconds=60.0).events()) for _ in range(2))
    assert one == other
'''

_README = """\
# {project}

Began as millstream's example `{name}`. {about}

```
pip install 'millstream[spark]' pytest
```

## Try it

```
pytest                           # the pipeline against its generator, without a broker or Spark
millstream graph pipeline.py     # the pipeline as a picture
```

With a broker and Spark, each in a terminal of its own:

```
millstream serve --data ./data
millstream run pipeline.py --create-topics
python generate.py{speed}
millstream consume {topic} -o start
millstream view watch {view}
```

`millstream run pipeline.py --watch` starts it again whenever you save the file.

## What to change first

{changes}
"""

_IGNORED = "/data/\n/.millstream/\n__pycache__/\n"


def files_of(example: Example, project: str) -> dict[str, str]:
    """The text of every file of the project by its name. In files of the example, imports of the example's
    package become imports of neighbouring modules, and a comment on top says what to change first.
    """
    files = {}
    for name, change in example.change.items():
        text = (example.directory / name).read_text()
        text = text.replace(f"millstream.examples.{example.name}.", "")
        text = text.replace(f"src/millstream/examples/{example.name}/", "")
        files[name] = fill(f"Change first: {change}", 108, initial_indent="# ", subsequent_indent="# ")
        files[name] += f"\n{text}"
    files["test_pipeline.py"] = _TEST.format(
        results=list(example.results),
        seconds=example.seconds,
        recall=example.recall,
        precision=example.precision,
    )
    files["README.md"] = _README.format(
        project=project,
        name=example.name,
        about=" ".join(dedent(example.about).split()),
        speed="" if example.speed == 1 else f" --speed {example.speed:g}",
        topic=next(iter(example.results)),
        view=example.view,
        changes="\n".join(f"- `{name}`: {change}" for name, change in example.change.items()),
    )
    files[".gitignore"] = _IGNORED
    return files
