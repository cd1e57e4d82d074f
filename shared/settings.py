"""One frozen settings value a service: flags > environment > TOML file > defaults; unknown keys are errors.

Read once, in `__main__`; nothing else reads the environment.
"""

import json
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from shared.errors import SettingError

SECTIONS = ("scheduler", "worker")
CONFIG_FLAG = "--config"
CONFIG_VARIABLE = "TOKENTIDE_CONFIG"
PRINT_FLAG = "--print-config"


class ServiceSettings(BaseSettings):
    """Base of the services' settings. `section` names the TOML table and the environment's prefix."""

    section: ClassVar[str]
    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, cli_kebab_case=True, cli_implicit_flags=True
    )

    @classmethod
    def read(cls, args: Sequence[str], environment: dict[str, str] | None = None) -> Self:
        """Settings from a command line. Raises SettingError with one clear line."""
        env = dict(os.environ) if environment is None else environment
        prefix = f"TOKENTIDE_{cls.section.upper()}_"
        config_path, rest = _take_value(list(args), CONFIG_FLAG)
        path = config_path or env.get(CONFIG_VARIABLE)
        try:
            file_values = cls._file_values(Path(path)) if path else {}
            sources = _Sources(rest, prefix, _env_values(cls, env, prefix), file_values)
            return _build(cls, sources)
        except (ValidationError, SettingsError) as error:
            raise SettingError(_one_line(error)) from error

    @classmethod
    def _file_values(cls, path: Path) -> dict[str, Any]:
        try:
            tables = tomllib.loads(path.read_text())
        except OSError as error:
            raise SettingError(f"{path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingError(f"{path}: {error}") from error
        stray = sorted(name for name in tables if name not in SECTIONS)
        if stray:
            known = ", ".join(f"[{name}]" for name in SECTIONS)
            raise SettingError(f"{path}: {', '.join(stray)}: settings stand in a table of {known}")
        values: dict[str, Any] = tables.get(cls.section, {})
        if not isinstance(values, dict):
            raise SettingError(f"{path}: {cls.section} is a table: [{cls.section}]")
        unknown = sorted(set(values) - set(cls.model_fields))
        if unknown:
            raise SettingError(f"{path}: [{cls.section}] has unknown keys: {', '.join(unknown)}")
        return values

    def as_json(self) -> str:
        """All settings, secrets masked."""
        return json.dumps(
            {
                k: str(v) if isinstance(v, SecretStr | Path) else v
                for k, v in self.model_dump().items()
            },
            indent=2,
            default=str,
        )


Settings = TypeVar("Settings", bound=ServiceSettings)


_SOURCES = (
    "Beside these flags: --config FILE (TOML, a table [{section}]), --print-config (what is in force). "
    "Flags win over the environment ({prefix}NAME), which wins over the file, named there or in "
    "TOKENTIDE_CONFIG. An unknown name is an error."
)


class _Sources:
    def __init__(
        self,
        args: list[str],
        prefix: str,
        env_values: dict[str, str],
        file_values: dict[str, Any],
    ) -> None:
        self.args = args
        self.prefix = prefix
        self.env_values = env_values
        self.file_values = file_values


def _build(cls: type[Settings], sources: _Sources) -> Settings:
    class Bound(cls):  # type: ignore[valid-type, misc]
        __doc__ = f"{cls.__doc__}\n\n{_SOURCES.format(prefix=sources.prefix, section=cls.section)}"

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (
                CliSettingsSource(
                    settings_cls,
                    cli_parse_args=sources.args,
                    cli_prog_name=f"tokentide {cls.section}",
                    cli_exit_on_error=False,
                ),
                InitSettingsSource(settings_cls, init_kwargs=sources.env_values),
                InitSettingsSource(settings_cls, init_kwargs=sources.file_values),
            )

    bound: Settings = Bound()
    return bound


def _env_values(cls: type[ServiceSettings], env: dict[str, str], prefix: str) -> dict[str, str]:
    ours = {
        k.upper().removeprefix(prefix).lower(): v for k, v in env.items() if _is_ours(k, prefix)
    }
    unknown = sorted(set(ours) - set(cls.model_fields))
    if unknown:
        names = ", ".join(f"{prefix}{name.upper()}" for name in unknown)
        raise SettingError(f"unknown environment settings: {names}")
    return ours


def _is_ours(name: str, prefix: str) -> bool:
    return name.upper().startswith(prefix)


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The rest of it: what a service finds there that is to be set by its flags alone."""
    prefixes = tuple(f"TOKENTIDE_{section.upper()}_" for section in SECTIONS)
    ours = (*prefixes, CONFIG_VARIABLE)
    return {k: v for k, v in environment.items() if not k.upper().startswith(ours)}


def _take_value(args: list[str], flag: str) -> tuple[str | None, list[str]]:
    for at, arg in enumerate(args):
        if arg == flag and at + 1 < len(args):
            return args[at + 1], args[:at] + args[at + 2 :]
        if arg.startswith(f"{flag}="):
            return arg.partition("=")[2], args[:at] + args[at + 1 :]
    return None, args


def _one_line(error: ValidationError | SettingsError) -> str:
    if isinstance(error, ValidationError):
        parts = [
            f"{'.'.join(str(at) for at in e['loc']) or 'settings'}: {e['msg']}"
            for e in error.errors()
        ]
        return "; ".join(parts)
    return " ".join(str(error).split())


def split_flag(args: Sequence[str], flag: str) -> tuple[bool, list[str]]:
    """Whether a bare flag is there, and the arguments without it."""
    return flag in args, [arg for arg in args if arg != flag]


def fail(error: Exception) -> int:
    """One clear line and a non-zero exit."""
    print(f"error: {error}", file=sys.stderr)
    return 2
