"""Sections of the configuration in a recipe, by name. Light: `plan` reads it without torch, Prefect or Ray."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def sections(*parts: BaseModel) -> Mapping[str, Any]:
    """The parts of the configuration that decide a stage's output, by section."""
    return {section_name(type(part)): part.model_dump(mode="json") for part in parts}


def section_name(section: type[BaseModel]) -> str:
    """The name under which a section stands in a recipe: `clean` for CleanConfig."""
    return section.__name__.removesuffix("Config").lower()
