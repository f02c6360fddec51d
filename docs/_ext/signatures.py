"""What a reader of the reference sees of signatures: short types, public bases, and values that mean something."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.addnodes import desc_annotation, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

LONGEST = 80
ARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[(.+?)\]\]")
#: A type with conditions on it, and the type.
CONDITIONAL = re.compile(r"Annotated\[(\w+), .*\](?= \| None|$)")
#: A default that is no Python: ``<factory>``.
UNWRITABLE = re.compile(r"(?<== )<[^<>]*>")


def shorten(_app: Sphinx, page: nodes.document) -> None:
    """Take out what says nothing: long values, addresses in memory, conditions of types, "Bases: object"."""
    for line in [line for line in page.findall(nodes.paragraph) if line.astext() == "Bases: object"]:
        line.parent.remove(line)
    for dash in [text for text in page.findall(nodes.Text) if text == " -- "]:  # between a parameter and what it is
        dash.parent.replace(dash, nodes.Text(": "))
    for annotation in list(page.findall(desc_annotation)):
        text = annotation.astext()
        if text.startswith(": ") and CONDITIONAL.search(text):
            annotation.children = [nodes.Text(CONDITIONAL.sub(r"\1", text))]
        if text.startswith(" = ") and (len(text) > LONGEST or " at 0x" in text):
            annotation.parent.remove(annotation)


def shorten_types(
    _app: Sphinx, _what: str, _name: str, item: Any, _options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Write arrays as the source does, and leave out defaults that can't be written.

    Of a model that is read from a file the text says what its fields are.
    """
    if hasattr(item, "model_fields"):
        return "", None
    signature = signature and UNWRITABLE.sub("...", signature)
    arrays = [text and ARRAY.sub(r"~numpy.typing.NDArray[\1]", text) for text in (signature, returned)]
    return arrays[0], arrays[1]


def public_bases(_app: Sphinx, _name: str, _item: Any, _options: Any, bases: list[Any]) -> None:
    """Leave out base classes that are nobody's business, and those that only help a type checker."""
    told = [base for base in bases if not getattr(base, "__name__", "").startswith("_")]
    bases[:] = [base for base in told if getattr(base, "__module__", "") != "typing"] or [object]


def skip_settings(_app: Sphinx, _what: str, name: str, _item: Any, _skip: bool, _options: Any) -> bool | None:
    """Leave out what pydantic keeps for itself."""
    return True if name == "model_config" else None


def whole_text(_app: Sphinx, what: str, _name: str, _item: Any, _options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking what stands before the first colon of a property's text for its type."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment


def mark_offered_again(_app: Sphinx, env: BuildEnvironment) -> None:
    """Tell Sphinx which names are second names, so that a short name means the place where a thing is defined."""
    python = env.domains.python_domain
    modules = set(python.modules)
    for name, entry in python.objects.items():
        place = name
        while place and place not in modules | {"hushquery"}:
            place = place.rpartition(".")[0]
        if not place or place == name or entry.aliased:
            continue
        item = getattr(importlib.import_module(place), name.removeprefix(f"{place}.").split(".")[0])
        if getattr(item, "__module__", place) != place and callable(item):
            python.objects[name] = entry._replace(aliased=True)


def is_public(name: str) -> bool:
    """Whether a module of hushquery offers a name to others."""
    module, _, inside = name.rpartition(".")
    return module.startswith("hushquery") and inside in getattr(importlib.import_module(module), "__all__", ())


class Types(SphinxPostTransform):
    """Links from the types in signatures to what they name.

    Sphinx would compare each of the many ``str`` and ``int`` with every name there is. And it would take a short name,
    which is what is left of a type that only a type checker imports, for any thing that is called so.
    """

    default_priority = 5  # before Sphinx looks

    def run(self, **_kwargs: Any) -> None:
        """Resolve the types of a page; what ought to be there and is not, is left for Sphinx to warn of."""
        objects = self.env.domains.python_domain.objects
        for node in list(self.document.findall(pending_xref)):
            if node.get("refdomain") == "py" and "refexplicit" not in node:
                target = node["reftarget"]
                name = target if target in objects else home_of(target, node.get("py:module") or "", objects)
                if name is not None:
                    entry = objects[name]
                    page = node.get("refdoc", self.env.docname)
                    link = make_refnode(self.app.builder, page, entry.docname, entry.node_id, list(node.children), name)
                    node.replace_self(link)
                elif not is_public(target):
                    node.replace_self(list(node.children))


def home_of(short: str, module: str, objects: Mapping[str, Any]) -> str | None:
    """Find what a module means by a short name: its own, or the only one in its package, or the only one there is."""
    named = by_last_word(len(objects), objects).get(short, []) if "." not in short else []
    for place in (f"{module}.", ".".join(module.split(".")[:2]) + ".", "hushquery."):
        near = [name for name in named if name.startswith(place)]
        if len(near) == 1:
            return near[0]
    return None


_LAST_WORDS: dict[int, dict[str, list[str]]] = {}


def by_last_word(size: int, objects: Mapping[str, Any]) -> dict[str, list[str]]:
    """Give the names that end in a word, without second names of a thing."""
    if size not in _LAST_WORDS:
        made = _LAST_WORDS[size] = {}
        for name, entry in objects.items():
            if not entry.aliased:
                made.setdefault(name.rpartition(".")[2], []).append(name)
    return _LAST_WORDS[size]


def short_name(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element) -> nodes.Node | None:
    """Find what a docstring means by a short name: the one public thing of hushquery that is called so.

    A package may offer what one of its modules defines; the module is meant.
    """
    target = node.get("reftarget", "").removesuffix("()")
    if node.get("refdomain") != "py" or not target or target.startswith("hushquery."):
        return None
    objects = env.domains.python_domain.objects
    found = [entry for name, entry in objects.items() if name.endswith(f".{target}") and not entry.aliased]
    if len(found) != 1:
        return None
    return make_refnode(app.builder, node["refdoc"], found[0].docname, found[0].node_id, text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Join in."""
    app.connect("doctree-read", shorten)
    app.connect("autodoc-process-signature", shorten_types)
    app.connect("autodoc-skip-member", skip_settings)
    app.connect("autodoc-process-bases", public_bases)
    app.add_post_transform(Types)
    app.connect("env-updated", mark_offered_again)
    app.connect("missing-reference", short_name)
    app.connect("autodoc-process-docstring", whole_text, priority=400)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
