"""Forms that browsers send."""

from __future__ import annotations

from urllib.parse import parse_qs

from promptgraft.service.server.calls import ApiCall
from promptgraft.service.server.problems import ApiProblem

_MOST_FIELDS = 60


def form_of(call: ApiCall) -> dict[str, str]:
    """Return the fields of the form in the body, the last of each name; raises as `form_lists`."""
    return {name: values[-1].strip() for name, values in form_lists(call).items()}


def form_lists(call: ApiCall) -> dict[str, list[str]]:
    """Return the fields of the form in the body, with every value of each name.

    Raises:
        Problem: 400, 415: the body is not a form, or has too many fields.
    """
    return parsed_form(call.headers.get("content-type", ""), call.body)


def parsed_form(content_type: str, body: bytes) -> dict[str, list[str]]:
    """Return the fields of a form; raises as `form_lists`."""
    media = content_type.partition(";")[0]
    if media != "application/x-www-form-urlencoded":
        raise ApiProblem(415, f"expected a form, found {media[:100]}")
    try:
        # Bounded, because parsing takes time for every field.
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise ApiProblem(
            400, f"expected a form of at most {_MOST_FIELDS} fields, found more"
        ) from None
    # Browsers end the lines of a text with both characters, whatever was typed.
    return {
        name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()
    }
