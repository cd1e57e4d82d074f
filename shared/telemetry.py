"""Logs: one line an event, as text or JSON, to stderr. Never prompts, token ids or keys."""

import asyncio
import json
import logging
import sys
import time


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _NotOfCancelledCalls(logging.Filter):
    """grpc logs a traceback for a call whose handler is cancelled before it has begun, as a server stops."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        return kind is None or not issubclass(kind, asyncio.CancelledError)


def set_up_logs(level: str, log_format: str, service: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(
            logging.Formatter(f"%(asctime)s {service} %(levelname)s %(message)s", "%H:%M:%S")
        )
    handler.addFilter(_NotOfCancelledCalls())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
