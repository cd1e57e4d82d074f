"""The scheduler's process: everything is built in `service.py`, settings are read here."""

import sys
from collections.abc import Sequence

from scheduler_service.config import SchedulerSettings
from scheduler_service.service import serve
from shared.errors import SettingError, StoreRefused, StoreUnavailable
from shared.serving_process import run_loop
from shared.settings import PRINT_FLAG, fail, split_flag
from shared.telemetry import set_up_logs


def main(args: Sequence[str] | None = None) -> int:
    only_print, rest = split_flag(sys.argv[1:] if args is None else args, PRINT_FLAG)
    try:
        settings = SchedulerSettings.read(rest)
        if only_print:
            print(settings.as_json())
            return 0
        set_up_logs(settings.log_level, settings.log_format, "scheduler")
        return run_loop(serve(settings))
    except (SettingError, StoreRefused, StoreUnavailable) as error:
        return fail(error)


if __name__ == "__main__":
    raise SystemExit(main())
