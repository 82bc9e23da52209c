"""The page by which Google Drive asks whether a large file should really be downloaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Form:
    """Where a form leads, and what it silently sends along."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)


class ConfirmationPage(HTMLParser):
    """Finds the title of a page and the form on it that confirms a download."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.title = ""
        self._in_title = False
        self._forms: list[Form] = []
        self.feed(page)

    @property
    def confirmation(self) -> Form | None:
        return next((form for form in self._forms if "confirm" in form.fields), None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        match tag:
            case "title":
                self._in_title = True
            case "form":
                self._forms.append(Form(values.get("action", "")))
            case "input" if self._forms and values.get("type") == "hidden":
                self._forms[-1].fields[values.get("name", "")] = values.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = " ".join((self.title + data).split())
