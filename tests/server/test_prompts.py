"""Prompt templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from bird_env.errors import DataError, InvalidRequest
from bird_server.prompts import Prompts

CONTEXT = {
    "issue": "The total is wrong & I do not know why",
    "evidence": None,
    "issue_sql": ["SELECT sum(x) FROM t WHERE a < 3", "DROP TABLE t"],
    "schema": "CREATE TABLE t(x, a);",
    "schema_truncated_chars": 0,
    "database": "shop",
    "max_steps": 12,
}


@pytest.mark.parametrize("name", ["plain", "bird_rl"])
def test_shipped_templates_hold_everything_a_policy_needs(name: str) -> None:
    prompt = Prompts().render(name, CONTEXT)
    assert prompt.template == f"{name}@1"
    assert [message.role for message in prompt.messages] == ["system", "user"]
    for part in (CONTEXT["issue"], CONTEXT["schema"], *CONTEXT["issue_sql"]):  # type: ignore[misc]
        assert part in prompt.text
    assert "12" in prompt.messages[0].content


@pytest.mark.parametrize("name", ["plain", "bird_rl"])
def test_without_a_task_there_is_the_schema_alone(name: str) -> None:
    prompt = Prompts().render(name, {**CONTEXT, "issue": None, "issue_sql": []})
    assert "CREATE TABLE" in prompt.text
    assert "None" not in prompt.text


def test_a_template_of_ones_own_is_versioned_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "mine.j2").write_text("{% block user %}Q: {{ issue }}{% endblock %}")
    prompts = Prompts(tmp_path)
    assert prompts.names == ["bird_rl", "mine", "plain"]
    prompt = prompts.render("mine", CONTEXT)
    assert [message.role for message in prompt.messages] == ["user"]
    assert prompt.text == f"Q: {CONTEXT['issue']}"
    assert len(prompt.template.removeprefix("mine@")) == 8


def test_a_template_replaces_a_shipped_one_by_name(tmp_path: Path) -> None:
    (tmp_path / "plain.j2").write_text("{# version: 7b #}{% block user %}x{% endblock %}")
    assert Prompts(tmp_path).render("plain", CONTEXT).template == "plain@7b"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="bird_rl, plain"):
        Prompts().render("none", CONTEXT)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% block user %}{{ issue", "no prompt template"),
        ("Just text", "no block `user`"),
    ],
)
def test_a_broken_template_is_an_error_at_start(tmp_path: Path, source: str, words: str) -> None:
    (tmp_path / "bad.j2").write_text(source)
    with pytest.raises(DataError, match=words):
        Prompts(tmp_path)


def test_a_template_cannot_reach_into_python(tmp_path: Path) -> None:
    (tmp_path / "evil.j2").write_text("{% block user %}{{ issue.__class__.__mro__ }}{% endblock %}")
    with pytest.raises(DataError):
        Prompts(tmp_path).render("evil", CONTEXT)


def test_a_template_that_asks_for_what_it_is_not_given_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.j2").write_text("{% block user %}{{ gold }}{% endblock %}")
    with pytest.raises(DataError, match="gold"):
        Prompts(tmp_path).render("odd", CONTEXT)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder"):
        Prompts(tmp_path / "missing")
