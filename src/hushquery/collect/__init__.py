"""The collector: takes reports over HTTP, keeps them durably, and moves epochs from phase to phase."""

from __future__ import annotations
