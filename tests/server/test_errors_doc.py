"""Problem documents in the description of a route."""

from __future__ import annotations

import pytest

from bird_server.errors_doc import problems


def test_each_status_is_a_problem_and_some_are_everywhere() -> None:
    found = problems(404, 409)
    assert list(found) == [401, 404, 409, 500]
    for response in found.values():
        assert list(response["content"]) == ["application/problem+json"]
        assert response["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
    assert found[409]["description"] == "Conflict"


def test_a_number_that_is_no_status_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="299"):
        problems(299)
