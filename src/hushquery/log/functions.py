"""Functions that an engine has and Ibis has no name for."""

from __future__ import annotations

from typing import Any

__all__ = ["call"]


def call(function: str, argument: Any, returns: str) -> Any:
    """Call the engine's own function of one column."""
    import ibis

    def body(value: Any) -> Any:
        raise NotImplementedError(value)

    return ibis.udf.scalar.builtin(body, name=function, signature=((argument.type(),), returns))(argument)
