"""What a producer has said in a session and the worker has not confirmed, to be said again where it was lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from worker.errors import bad_request, unsupported_option
from worker.wire.requests import Cancel, Finish, Flush, Text

Said = Text | Flush | Finish | Cancel


def check_text(text: str, seq: int | None = None, gen: int | None = None, speaker: int | None = None) -> Text:
    """Raises WireError (bad_request): NUL, or half a surrogate pair that can never become whole."""
    try:
        return Text(seq=seq, text=text, gen=gen, speaker=speaker)
    except ValidationError as error:
        raise bad_request(error.errors(include_input=False)[0]["msg"], field="text") from None


def check_speaker(speaker: int | None, voices: Sequence[str]) -> None:
    """Raises WireError (unsupported_option)."""
    if speaker is not None and not 0 <= speaker < len(voices or ("",)):
        raise unsupported_option("speaker", "the session has no such voice")


class Outbox:
    """Numbers what the producer says and keeps it until it is known to have arrived. Saying it again is harmless: the
    worker ignores text that it has, a second ``finish``, and cancels of older generations.

    ``unspoken_chars`` is an upper bound of the text that the model has not begun to speak: a worker tells when it has
    run out of text, and nothing in between.
    """

    def __init__(self, opening_chars: int = 0, *, finished: bool = False) -> None:
        """``opening_chars``, ``finished``: of the text in ``open``."""
        self.gen = 0
        self.next_seq = 0
        self.finished = finished
        self._texts: deque[Text] = deque()
        """Of the current generation, up to ``next_seq``."""
        self._orders: list[tuple[int, Flush | Finish]] = []
        """Each with the number of the text that came after it."""
        self._cancels: list[tuple[int, Cancel]] = []
        """Each with its generation, all older than the current one."""
        self._text_chars = 0
        self._taken_chars = opening_chars

    @property
    def unspoken_chars(self) -> int:
        return self._taken_chars + self._text_chars

    @property
    def awaits_cancelled(self) -> bool:
        """What the worker says now may still speak of an older generation."""
        return bool(self._cancels)

    @property
    def awaits_flushed(self) -> bool:
        return any(isinstance(order, Flush) for _, order in self._orders)

    def pending(self) -> Iterator[Said]:
        """All that is not confirmed, in the order in which it was said."""
        yield from (cancel for _, cancel in self._cancels)
        orders = deque(self._orders)
        for seq, text in enumerate(self._texts, self._first_seq):
            while orders and orders[0][0] <= seq:
                yield orders.popleft()[1]
            yield text
        yield from (order for _, order in orders)

    @property
    def oldest(self) -> Said | None:
        return next(self.pending(), None)

    def text(self, text: str, speaker: int | None = None) -> Text:
        """Raises WireError (bad_request), as ``check_text`` or after finish."""
        if self.finished:
            raise bad_request("no text after finish")
        message = check_text(text, self.next_seq, self.gen, speaker)
        self.next_seq += 1
        self._texts.append(message)
        self._text_chars += len(message.text)
        return message

    def flush(self) -> Flush:
        """Raises WireError (bad_request) after finish, when no answer would come."""
        if self.finished:
            raise bad_request("no flush after finish")
        flush = Flush(seq=self.next_seq, gen=self.gen)
        self._orders.append((self.next_seq, flush))
        return flush

    def finish(self) -> Finish:
        self.finished = True
        finish = Finish(seq=self.next_seq, gen=self.gen)
        self._orders.append((self.next_seq, finish))
        return finish

    def cancel(self, played_ms: float | None, keep: bool) -> Cancel:
        """End the current generation; what was said in it needs no confirmation any more."""
        cancel = Cancel(gen=self.gen, played_ms=played_ms, keep=keep)
        self._cancels.append((self.gen, cancel))
        self._begin(self.gen + 1)
        self.finished = not keep
        return cancel

    def taken(self, text_seq: int) -> bool:
        """The worker has the current generation's text before ``text_seq``. False: it cannot be asking for that."""
        if not self._first_seq <= text_seq <= self.next_seq:
            return False
        for _ in range(text_seq - self._first_seq):
            chars = len(self._texts.popleft().text)
            self._text_chars -= chars
            self._taken_chars += chars
        return True

    def spoken(self, text_seq: int) -> None:
        """The model has run out of the text before ``text_seq``."""
        if self.taken(text_seq):
            self._taken_chars = 0

    def flushed(self, text_seq: int) -> None:
        """The oldest flush is answered."""
        first = next((item for item in self._orders if isinstance(item[1], Flush)), None)
        if first is not None:
            self._orders.remove(first)
        self.spoken(text_seq)

    def cancelled(self, gen: int) -> bool:
        """The worker has begun the generation ``gen``. False: that is known already.

        A generation that was not begun here is somebody else's cancel: what was said before it is void.
        """
        news = gen > self.gen or any(ended < gen for ended, _ in self._cancels)
        self._cancels = [(ended, cancel) for ended, cancel in self._cancels if ended >= gen]
        if gen > self.gen:
            self._begin(gen)
            self.finished = False
        return news

    def adopt(self, gen: int, since: int, text_seq: int) -> bool:
        """Another worker has the session: it calls the generation that it speaks ``gen``, and every number from
        ``since`` on means that one too. False: it misses text that is gone here.

        A cancel that it has not heard of is for that generation. One that it has heard of stays as it was: said again,
        it is answered again.
        """
        heard = [each for each in self._cancels if each[0] < since]
        unheard = [cancel for ended, cancel in self._cancels if ended >= since]
        renamed = [(gen + at, cancel.model_copy(update={"gen": gen + at})) for at, cancel in enumerate(unheard)]
        self._cancels = heard + renamed
        self.gen = gen + len(unheard)
        self._texts = deque(text.model_copy(update={"gen": self.gen}) for text in self._texts)
        self._orders = [(seq, order.model_copy(update={"gen": self.gen})) for seq, order in self._orders]
        return bool(self._cancels) or self.taken(text_seq)

    def _begin(self, gen: int) -> None:
        self.gen = gen
        self._texts.clear()
        self._orders.clear()
        self._text_chars = self._taken_chars = self.next_seq = 0

    @property
    def _first_seq(self) -> int:
        return self.next_seq - len(self._texts)
