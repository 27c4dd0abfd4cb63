"""Changes to IR text, from a broken byte to a well-formed module that says something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|[%@!#^][\w.$-]*|[A-Za-z_][\w.$]*|\d+(?:\.\d*)?(?:e[+-]?\d+)?|->|\s+|.', re.DOTALL
)
_PAIR = re.compile(r'[A-Za-z_][\w.]* = (?:"[^"\n]*"|\[[^]\n]*\]|\{[^}\n]*\}|[^,>})\n]+)')
_OPEN, _CLOSE = "([{<", ")]}>"

NUMBERS = (
    *("0", "1", "2", "3", "4", "-1", "-0", "127", "?"),
    *(str(2**power + step) for power in (31, 32, 60, 62, 63, 64, 200) for step in (-1, 0)),
    *("0x10", "1e999", "-1e999", "1.0e-400", "0.5", "nan", "inf"),
)
CANARY = "VLLM_IR_FUZZ_CANARY"
"""Name of a function that generated code must never call."""
HOSTILE = (
    *('""', '"\\00"', '"\\FF\\FE"', '"a\\nb"', '"self"', '"lambda"', '"torch"', '"__class__"', '"a.b"', '"meta"'),
    *(f'"a\\n    {CANARY}()\\n"', f'"{CANARY}()"', f'"x={CANARY}()"', f'"\\22); {CANARY}(); (\\22"', '"9**9**9**9"'),
    *('"().__class__"', '"cuda:7"', '"nope"', '"s0"', '"s0*s1 - 1"', '"1/0"', '"s0 +"', '"-s0"', '"(s0"'),
    *("%self", "%0", "%lambda", "@main", "@forward", f'@"python.builtins.{CANARY}"', '@"aten.__class__.mro"'),
    *("@python.builtins.eval", "@aten.add.Tensor", "@aten.copy_.default", "@higher_order.cond", "@other", "^bb0"),
    *("none", "true", "i64", "index", "tensor<?xf32>", "tensor<2x2xf32>", "f8E5M2", "unit", "loc(unknown)"),
)


def tokens(text: str) -> list[str]:
    """The text in pieces, spaces among them; joined they are the text."""
    return _TOKEN.findall(text)


class Mutator:
    """Makes variants of texts out of a corpus; the same ones for the same random numbers."""

    def __init__(self, corpus: Sequence[str], random: Random) -> None:
        """`corpus` are the texts to start from."""
        self._corpus = corpus
        self._random = random
        self._words = sorted({word for text in corpus for word in tokens(text) if not word.isspace()})
        by_kind: dict[str, list[str]] = {}
        for word in self._words:
            by_kind.setdefault(_kind(word), []).append(word)
        self._by_kind = by_kind
        self._changes: tuple[Callable[[list[str]], None], ...] = (
            *(self._other_number, self._other_word, self._other_word, self._word_of_same_text, self._hostile),
            *(self._delete, self._duplicate, self._swap, self._any_word, self._other_number),
        )
        self._small_changes = (self._other_number, self._word_of_same_text, self._word_of_same_text, self._swap)
        self._small_text_changes = (self._lines, self._swap_pairs, self._delete_pair, self._copy_pair)
        self._text_changes: tuple[Callable[[str], str], ...] = (
            *(self._lines, self._lines, self._splice, self._swap_pairs, self._delete_pair, self._copy_pair),
            *(self._bytes, self._truncate, self._nest, self._balanced),
        )

    def next(self) -> str:
        """A text with one to five changes; rarely one of the corpus as it is.

        Most changes are small enough that many texts stay valid, and reach the passes.
        """
        text = self._random.choice(self._corpus)
        if self._random.random() < 0.65:
            for _ in range(self._random.choice((1, 1, 1, 2, 3))):
                text = self._changed(text, self._small_changes, self._small_text_changes)
            return text
        for _ in range(self._random.choice((0, 1, 1, 1, 1, 2, 2, 3, 5))):
            text = self._changed(text, self._changes, self._text_changes)
        return text

    def _changed(
        self,
        text: str,
        changes: Sequence[Callable[[list[str]], None]],
        text_changes: Sequence[Callable[[str], str]],
    ) -> str:
        if self._random.random() < 0.35:
            return self._random.choice(text_changes)(text)
        words = tokens(text)
        if words:
            self._random.choice(changes)(words)
        return "".join(words)

    # Changes to tokens

    def _place(self, words: list[str], kind: str | None = None) -> int | None:
        found = [i for i, word in enumerate(words) if not word.isspace() and kind in (None, _kind(word))]
        return self._random.choice(found) if found else None

    def _other_number(self, words: list[str]) -> None:
        place = self._place(words, "0")
        if place is None:
            return
        if self._random.random() < 0.7 and words[place].isdecimal():
            words[place] = str(max(int(words[place][:30]) + self._random.choice((-2, -1, 1, 2)), 0))
        else:
            words[place] = self._random.choice(NUMBERS)

    def _other_word(self, words: list[str]) -> None:
        place = self._place(words)
        if place is not None:
            words[place] = self._random.choice(self._by_kind.get(_kind(words[place]), self._words))

    def _word_of_same_text(self, words: list[str]) -> None:
        place = self._place(words)
        if place is not None:
            kind = _kind(words[place])
            words[place] = self._random.choice([word for word in words if not word.isspace() and _kind(word) == kind])

    def _hostile(self, words: list[str]) -> None:
        new = self._random.choice(HOSTILE)
        place = self._place(words, _kind(new)) if self._random.random() < 0.8 else self._place(words)
        if place is not None:
            words[place] = new

    def _any_word(self, words: list[str]) -> None:
        words.insert(self._random.randrange(len(words)), self._random.choice(self._words))

    def _delete(self, words: list[str]) -> None:
        place = self._place(words)
        if place is not None:
            del words[place : place + self._random.choice((1, 1, 1, 2, 5))]

    def _duplicate(self, words: list[str]) -> None:
        start = self._random.randrange(len(words))
        length = self._random.choice((1, 2, 4, 8, 16))
        words[start:start] = words[start : start + length]

    def _swap(self, words: list[str]) -> None:
        one = self._place(words)
        other = None if one is None else self._place(words, _kind(words[one]))
        if one is not None and other is not None:
            words[one], words[other] = words[other], words[one]

    # Changes to text

    def _lines(self, text: str) -> str:
        lines = text.splitlines(keepends=True)
        if not lines:
            return text
        one, other = self._random.randrange(len(lines)), self._random.randrange(len(lines))
        match self._random.randrange(4):
            case 0:
                del lines[one]
            case 1:
                lines.insert(other, lines[one])
            case 2:
                lines[one], lines[other] = lines[other], lines[one]
            case _:
                donor = self._random.choice(self._corpus).splitlines(keepends=True)
                lines.insert(other, self._random.choice(donor or [""]))
        return "".join(lines)

    def _splice(self, text: str) -> str:
        donor = self._random.choice(self._corpus)
        lines, others = text.splitlines(keepends=True), donor.splitlines(keepends=True)
        cut, start = self._random.randint(0, len(lines)), self._random.randint(0, len(others))
        return "".join(lines[:cut] + others[start : start + self._random.choice((1, 2, 4, 100))] + lines[cut:])

    def _swap_pairs(self, text: str) -> str:
        pairs = list(_PAIR.finditer(text))
        if len(pairs) < 2:
            return text
        one, other = sorted(self._random.sample(pairs, 2), key=lambda pair: pair.start())
        middle = text[one.end() : other.start()]
        return text[: one.start()] + other[0] + middle + one[0] + text[other.end() :]

    def _delete_pair(self, text: str) -> str:
        pairs = list(_PAIR.finditer(text))
        pair = self._random.choice(pairs) if pairs else None
        return text if pair is None else text[: pair.start()] + text[pair.end() :]

    def _copy_pair(self, text: str) -> str:
        pairs = list(_PAIR.finditer(text))
        donors = _PAIR.findall(self._random.choice(self._corpus))
        if not pairs or not donors:
            return text
        end = self._random.choice(pairs).end()
        return f"{text[:end]}, {self._random.choice(donors)}{text[end:]}"

    def _bytes(self, text: str) -> str:
        data = list(text)
        for _ in range(self._random.choice((1, 1, 2, 8))):
            place = self._random.randint(0, len(data))
            character = chr(self._random.choice((self._random.randrange(128), self._random.randrange(0xD800))))
            data[place : place + self._random.choice((0, 1))] = [character] * self._random.choice((0, 1))
        return "".join(data)

    def _truncate(self, text: str) -> str:
        cut = self._random.randint(0, len(text))
        return text[:cut] if self._random.random() < 0.8 else text[cut:]

    def _nest(self, text: str) -> str:
        words = tokens(text)
        places = [i for i, word in enumerate(words) if word in _OPEN or word in ("tensor", "loc")]
        if not places:
            return text
        place = self._random.choice(places)
        words[place] *= self._random.choice((2, 3, 50, 3000))
        return "".join(words)

    def _balanced(self, text: str) -> str:
        """Delete, repeat or move a bracketed group."""
        words = tokens(text)
        places = [i for i, word in enumerate(words) if word in _OPEN]
        if not places:
            return text
        start = self._random.choice(places)
        depth = 0
        for end in range(start, len(words)):
            depth += (words[end] in _OPEN) - (words[end] in _CLOSE)
            if depth == 0:
                group = words[start : end + 1]
                words[start : end + 1] = self._random.choice(([], group + group, group[1:-1], [*group, ",", *group]))
                break
        return "".join(words)


def _kind(word: str) -> str:
    """Class of a token: words of one class may stand in each other's place."""
    first = word[0]
    if first.isdecimal() or word in NUMBERS:
        return "0"
    return "a" if first.isalpha() or first == "_" else first
