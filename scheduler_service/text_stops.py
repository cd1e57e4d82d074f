"""Stop strings on the driver's side: finds where they end a request, before its rows are committed."""

from collections.abc import Callable, Sequence

from scheduler_service.output_cursor import OutputCursor
from scheduler_service.planning.live import Admissible
from scheduler_service.planning.outcome import TextStop
from scheduler_service.text import TextCodec


class CodecTextStops:
    """`driver.TextStops` over the model's tokenizer."""

    def __init__(self, codec: Callable[[], TextCodec]) -> None:
        self._codec = codec
        self._cursors: dict[str, OutputCursor] = {}

    def open(self, record: Admissible, stop_strings: tuple[str, ...]) -> None:
        cursor = OutputCursor(
            self._codec(),
            stop_strings,
            include_stop=record.include_stop,
            min_tokens=record.stop.min_tokens,
        )
        cursor.push(record.log)
        self._cursors[record.request_id] = cursor

    def close(self, request_id: str) -> None:
        self._cursors.pop(request_id, None)

    def find(self, request_id: str, output_ids: Sequence[int], num_new: int) -> TextStop | None:
        cursor = self._cursors.get(request_id)
        if cursor is None:
            return None
        cursor.push(output_ids[len(output_ids) - num_new :])
        match = cursor.match
        if match is None:
            return None
        return TextStop(
            stop_string=match.stop_string,
            num_tokens=match.num_tokens,
            visible_tokens=match.visible_tokens,
            visible_chars=match.visible_chars,
        )
