"""What a reader of the reference sees of signatures: short types, public bases, and values that mean something."""

from __future__ import annotations

import importlib
import re
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.addnodes import desc_annotation, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
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


def short_name(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element) -> nodes.Node | None:
    """Find what a docstring means by a short name: the one public thing of hushquery that is called so.

    A package may offer what one of its modules defines; the module is meant.
    """
    target = node.get("reftarget", "").removesuffix("()")
    if node.get("refdomain") != "py" or not target:
        return None
    if "refexplicit" not in node and not is_public(target):
        return text  # a type in a signature that nobody else can use
    if target.startswith("hushquery."):
        return None
    python = env.domains.python_domain
    found = [entry for name, entry in python.objects.items() if name.endswith(f".{target}") and not entry.aliased]
    if len(found) != 1:
        return None
    [entry] = found
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Join in."""
    app.connect("doctree-read", shorten)
    app.connect("autodoc-process-signature", shorten_types)
    app.connect("autodoc-skip-member", skip_settings)
    app.connect("autodoc-process-bases", public_bases)
    app.connect("env-updated", mark_offered_again)
    app.connect("missing-reference", short_name)
    app.connect("autodoc-process-docstring", whole_text, priority=400)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
