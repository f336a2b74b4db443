"""``millstream version``: prints the versions of millstream and of the libraries it uses."""

from __future__ import annotations

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.output import Output, OutputOption, show_json

app = App()


def millstream_version() -> str:
    from importlib.metadata import version

    return version("millstream")


@app.command(
    epilog=examples(
        ("millstream version", "the installed versions"),
        ("millstream version --output json", "for a bug report or a script"),
    )
)
def version(output: OutputOption = Output.TABLE) -> None:
    """Print the versions of millstream, Python and the Kafka client library."""
    import platform

    import confluent_kafka

    versions = {
        "millstream": millstream_version(),
        "python": platform.python_version(),
        "confluent-kafka": confluent_kafka.__version__,
        "librdkafka": confluent_kafka.libversion()[0],
    }
    if output is Output.JSON:
        show_json(versions)
        return
    for name, number in versions.items():
        print(f"{name} {number}")
