"""Pipelines in files, and what is said of those that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.spark.pipelines import builtin
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.files import find_pipeline, from_yaml, load
from goqueue.spark.pipelines.definitions.flow import Flow, checkpoint_of, flow_of
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.scaffold import scaffold
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running.runner import describe_plan

WHOLE = """
name: paid-orders
summary: Orders that were paid.
settings:
  from: {doc: The topic to read.}
  least: 10
  names: [a, b]
source: {topics: "${from}", starting_position: 2026-11-15T00:00:00Z, maxMessagesPerTrigger: 1000, failOnDataLoss: false}
steps:
  - decode: {column: value, subject: orders-value}
  - select: ["key", "value.amount AS amount"]
  - filter: "amount > ${least}"
  - add: {day: "current_date()"}
  - sql: "SELECT *, 'a$' AS a FROM input"
quality:
  - {not_null: amount, otherwise: dead-letter}
  - {range: amount, min: "${least}", max: 100000, otherwise: drop}
sink: {topic: paid-orders}
trigger: 10 seconds
checkpoint: ./checkpoints/${from}
"""


def flow(text: str, **given: object) -> Flow:
    pipeline = from_yaml(text, "p.yaml")
    return flow_of(pipeline, Settings(pipeline.settings, given))


def problems(text: str, **given: object) -> list[str]:
    with pytest.raises(InvalidPipeline) as raised:
        flow(text, **given)
    title, *lines = str(raised.value).split("\n  ")
    assert title.startswith("p.yaml")
    return lines or [title]


def test_a_whole_pipeline_is_understood_and_its_settings_are_filled_in() -> None:
    made = flow(WHOLE, **{"from": "orders", "least": "12"})
    assert made.source.options == {
        "topics": "orders",
        "startingPosition": "2026-11-15T00:00:00Z",
        "maxMessagesPerTrigger": "1000",
        "failOnDataLoss": "false",
    }
    assert [step.kind for step in made.steps] == ["decode", "select", "filter", "add", "sql"]
    assert made.steps[2].argument == "amount > 12"
    assert [rule.name for rule in made.rules] == ["decode value", "not_null amount", "range amount"]
    assert made.rules[2].condition == "(amount) >= 12 AND (amount) <= 100000"
    assert (made.sink.topic, made.trigger, made.dead_letter_topic) == ("paid-orders", "10 seconds", "paid-orders.dlq")
    pipeline = from_yaml(WHOLE, "p.yaml")
    settings = Settings(pipeline.settings, {"from": "orders"})
    assert checkpoint_of(pipeline, settings) == "./checkpoints/orders"
    assert settings["names"] == ("a", "b")


def test_the_plan_tells_all_of_it_in_words() -> None:
    pipeline = from_yaml(WHOLE, "p.yaml")
    plan = describe_plan(pipeline, Settings(pipeline.settings, {"from": "orders"}), "./c")
    assert plan["source"].startswith("topics orders from 2026-11-15T00:00:00Z, ")
    assert plan["steps"][2] == "filter amount > 10"
    assert plan["quality"] == [
        "decode value: _corrupt IS NULL, otherwise dead-letter to paid-orders.dlq",
        "not_null amount: (amount) IS NOT NULL, otherwise dead-letter to paid-orders.dlq",
        "range amount: (amount) >= 10 AND (amount) <= 100000, otherwise drop",
    ]
    assert plan["sink"] == "topic paid-orders, made if it is not there, exactly once"
    assert plan["trigger"] == "every 10 seconds, until it is stopped"
    assert plan["checkpoint"] == "./c"


GOOD = "name: p\nsource: {topics: a}\nsink: {topic: b}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a", "p.yaml: it is not a pipeline; it begins with 'name: …'"),
        ("a: {", "p.yaml:1:5: it is not YAML: "),
        ("name: a\nname: b", "p.yaml:2:1: it is not YAML: name is there twice"),
        (GOOD + "sorce: {}", "sorce: no such key; did you mean 'source'?"),
        (GOOD.replace("name: p", "name: 'a b'"), "name: 'a b' is not a name; use 1 to 100"),
        (GOOD.replace("name: p", ""), "name: it is missing"),
        (GOOD.replace("source: {topics: a}", ""), "source: it has one of topics (such as orders,payments)"),
        (GOOD.replace("topics: a", "topc: a"), "source.topc: no such key; did you mean 'topics'?"),
        (GOOD.replace("topics: a", "topics: a, starting_position: tomorrow"), "source: the option startingPosition is"),
        (GOOD.replace("topics: a", "topics: a, endingPosition: latest"), "source: the option endingPosition is"),
        (GOOD.replace("topics: a", "topics: [1]"), "source.topics: [1] is neither a text, a number nor a list"),
        (GOOD.replace("topics: a", "topics: '${b}'"), "source.topics: ${b} is no setting; declare it under settings"),
        (GOOD.replace("sink: {topic: b}", ""), "sink: it is missing; write it like sink: {topic: paid-orders}"),
        (GOOD.replace("topic: b", "topik: b"), "(topik: no such key; did you mean 'topic'?)"),
        (GOOD.replace("topic: b", "topic: b, table: c"), "sink: it has one of topic, topic_from and table"),
        (GOOD.replace("topic: b", "topic: b, mod: c"), "sink.mod: no such key; did you mean 'mode'?"),
        (GOOD.replace("topic: b", "topic: b, mode: apend"), "sink.mode: 'apend' is not one of append, update, comp"),
        (GOOD.replace("topic: b", "table: b, format: parkay"), "sink.format: 'parkay' is not one of parquet, json"),
        (GOOD.replace("topic: b", "table: b, partition_by: 3"), "sink.partition_by: 3 is not a list of columns"),
        (GOOD + "trigger: availablenow", "trigger: 'availablenow' is not one of available-now"),
        (GOOD + "steps: {filter: a}", "steps: {'filter': 'a'} is not a list"),
        (GOOD + "steps: [{filtr: a}]", "steps[0]: filtr: no such step; did you mean 'filter'?"),
        (GOOD + "steps: [{filter: 3}]", 'steps[0]: filter: 3 is not what belongs there; write it like filter: "amount'),
        (GOOD + "steps: [{decode: {colum: a, subject: s}}]", "steps[0]: decode.colum: no such key; did you mean 'col"),
        (GOOD + "steps: [{decode: {column: a}}]", "steps[0]: decode: it has one of subject"),
        (GOOD + "steps: [{decode: {json: a INT, otherwise: no}}]", "steps[0]: decode.otherwise: False is not a text"),
        (GOOD + "steps: [{watermark: {column: a}}]", "steps[0]: watermark: it has a column and a delay"),
        (GOOD + "steps: [{a: 1, b: 2}]", "steps[0]: {'a': 1, 'b': 2} is not a step; a step is one of decode"),
        (GOOD + "quality: [{not_nul: a, otherwise: drop}]", "quality[0]: a rule has one of not_null, range, regex"),
        (GOOD + "quality: [{not_null: a}]", "quality[0]: otherwise: it is missing; it says what becomes of a row"),
        (GOOD + "quality: [{not_null: a, otherwise: dorp}]", "quality[0]: otherwise: it is 'dorp'"),
        (GOOD + "quality: [{range: a, otherwise: drop}]", "quality[0]: a range has min, max or both"),
        (GOOD + "quality: [{range: a, min: 3, max: 2, otherwise: drop}]", "quality[0]: min is 3 and max is 2; min "),
        (GOOD + "quality: [{regex: a, otherwise: drop}]", "quality[0]: pattern: it is missing"),
        (GOOD + "quality: [{regex: a, patern: b, otherwise: drop}]", "quality[0]: patern: no such key; did you mean '"),
        (GOOD + "quality: [{not_null: a, otherwise: drop, topic: b}]", "quality[0]: topic: only a rule with 'other"),
        (GOOD + "quality: [&r {not_null: a, otherwise: drop}, *r]", "quality: two rules are called 'not_null a'"),
        (GOOD + "settings: {a: {kind: nmber}}", "settings.a: kind: 'nmber' is not one of text, names"),
        (GOOD + "settings: {a: {default: 3, max: 2}}", "settings.a: 3 is out of bounds; allowed: 0 to 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place_and_what_would_be_right(text: str, told: str) -> None:
    lines = problems(text)
    assert any(told in line for line in lines), lines


def test_all_problems_are_told_at_once() -> None:
    assert len(problems(GOOD + "steps: [{filtr: a}, 3]\nquality: [{}]\ntrigger: 3")) == 4


MANY = """name: p
sorce: {subscribe: a, topics: b}
settings:
  from: {doc: What to read.}
  odd: {kind: nmber}
  start: {required: false}
steps:
  - filter: "a > ${odd}"
  - decode:
      colum: a
      subject: ${from}
sink:
  topic: ${from}
  mod: x
trigger: ${start}
extra: 1
"""


def test_one_wrong_key_does_not_hide_the_others_and_each_has_its_line() -> None:
    assert problems(MANY) == [
        "line 2: sorce: no such key; did you mean 'source'?",
        "line 2: sorce.subscribe: no such key; use 'topics'",
        "line 5: settings.odd: kind: 'nmber' is not one of text, names, number, ratio, duration, size, flag, choice, "
        "instant",
        "line 10: steps[1]: decode.colum: no such key; did you mean 'column'?",
        "line 14: sink.mod: no such key; did you mean 'mode'?",
        "line 16: extra: no such key; there are name, summary, settings, source, steps, quality, sink, trigger, "
        "checkpoint",
    ]


def test_a_plan_tells_lines_too() -> None:
    pipeline = from_yaml(GOOD + "steps:\n  - filter: a\n  - filtr: b\ntrigger: 3\n", "p.yaml")
    with pytest.raises(InvalidPipeline) as raised:
        describe_plan(pipeline, Settings((), {}), "c")
    assert str(raised.value).splitlines()[1:] == [
        "  line 6: steps[1]: filtr: no such step; did you mean 'filter'?",
        "  line 7: trigger: 3 is not one of available-now (read what is there, then end), an interval such as "
        "'10 seconds' (go on until stopped), batch (read all of it at each run)",
    ]


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("startingOffsets", "use 'startingPosition'"),
        ("maxOffsetsPerTrigger", "use 'maxMessagesPerTrigger'"),
        ("kafka.bootstrap.servers", "say it by --brokers or GOQUEUE_BROKERS"),
        ("checkpointLocation", "write checkpoint beside source"),
    ],
)
def test_names_of_kafka_are_told_as_they_are_called_here(key: str, told: str) -> None:
    pipeline = from_yaml(f"name: p\nsource:\n  topics: a\n  {key}: b\nsink: {{topic: b}}", "p.yaml")
    with pytest.raises(InvalidPipeline) as raised:
        describe_plan(pipeline, Settings((), {}), "c")
    assert f"  line 4: source.{key}: no such key; {told}" in str(raised.value).splitlines()


def test_a_setting_without_a_value_is_told() -> None:
    text = GOOD.replace("topics: a", "topics: '${t}'") + "settings: {t: {required: false}}"
    assert problems(text) == ["source.topics: the setting t has no value; --set t=…, or give it a default"]


def test_a_python_file_is_a_pipeline_with_functions_as_steps(tmp_path: Path) -> None:
    file = scaffold("my-orders", True, tmp_path)
    pipeline = load(file)
    made = flow_of(pipeline, Settings(pipeline.settings, {"from": "orders"}))
    assert made.steps[2].describe() == "in_cents: Amounts as whole cents."
    assert made.source.options["topics"] == "orders"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\n", "it has no PIPELINE; write"),
        ("x = 1\n1 / 0\n", "p.py:2: cannot be run: ZeroDivisionError"),
        ("x = (\n", "p.py:1: cannot be run: SyntaxError"),
        (
            "from goqueue.spark.pipelines import Pipeline\nPIPELINE = Pipeline(name='a')",
            "has one of run (a function) and",
        ),
    ],
)
def test_a_python_file_that_is_no_pipeline_is_told(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "p.py").write_text(text)
    with pytest.raises(InvalidPipeline) as raised:
        load(tmp_path / "p.py")
    assert told in str(raised.value)


def test_a_new_pipeline_can_be_planned_as_it_is_and_is_never_overwritten(tmp_path: Path) -> None:
    file = scaffold("my-orders", False, tmp_path)
    pipeline = load(file)
    plan = describe_plan(pipeline, Settings(pipeline.settings, {"from": "orders"}), "c")
    assert plan["source"] == "topics orders from earliest"
    before = file.read_text()
    assert f"goqueue pipeline plan {file.name} --set from=" in before
    all_of_it = from_yaml(before.replace("  # - ", "  - "), "p.yaml")
    whole = describe_plan(all_of_it, Settings(all_of_it.settings, {"from": "orders"}), "c")
    assert (len(whole["steps"]), len(whole["quality"])) == (5, 5)
    assert whole["steps"][-1].startswith("sql SELECT *, ")
    with pytest.raises(InvalidPipeline, match="is not overwritten"):
        scaffold("my-orders", False, tmp_path)
    assert file.read_text() == before
    with pytest.raises(InvalidPipeline, match=r"'\.\./x' is not a name"):
        scaffold("../x", False, tmp_path)


def test_what_is_neither_built_in_nor_a_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidPipeline, match=r"no pipeline 'reply'; did you mean 'replay'\?$"):
        find_pipeline("reply")
    with pytest.raises(InvalidPipeline, match="no pipeline 'zz'; there are archive, restore"):
        find_pipeline("zz")
    with pytest.raises(InvalidPipeline, match=r"zz\.yaml: there is no such file"):
        find_pipeline("zz.yaml")
    scaffold("zz", False, tmp_path)
    with pytest.raises(InvalidPipeline, match=r"did you mean the file zz\.yaml"):
        find_pipeline("zz")


@pytest.mark.parametrize("name", builtin.NAMES)
def test_every_built_in_pipeline_tells_what_it_does_and_what_can_be_set(name: str) -> None:
    pipeline: Pipeline = find_pipeline(name)
    assert pipeline.name == name
    assert pipeline.summary.endswith(".")
    assert len(pipeline.summary) <= 110
    assert pipeline.run is not None
    assert all(each.doc and each.name.isidentifier() for each in pipeline.settings)
    for each in pipeline.settings:
        if each.default is not None:
            assert each.parse(each.format(each.default) if each.default != () else ["x"]) is not None
