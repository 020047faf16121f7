"""Secrets that a name announces, in any notation: ``name=value``, options, JSON, YAML, TOML, XML,
headers, the queries of addresses, calls of a program's text, .netrc and SQL.

Each pattern is bounded, or reads each character once.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from profiler.core.redaction.secret_names import SecretKind, is_compound, listed_words, secret_kind
from profiler.core.redaction.secret_stems import STEMS
from profiler.core.redaction.secret_values import (
    PLACES_OF_VALUES,
    container_end,
    is_harmless,
    value_span,
)

# In a text in lower case, a word with the stem of a secret's name: few have one.
_NAME = rf"(?<![\w.-])(?=[\w.-]*?(?:{'|'.join(STEMS)}))[\w.-]+"
_MAX_LENGTH = 128
_MAX_LOOK_BACK = 80
_MAX_EARLIER = 300
_MAX_INNER = 4000
_MAX_WORDS = 8
# Between a name and its value.
_SIGN = r"""(\\{0,8}["'`]?\]?)(\s{0,8})(=>|:=|==|=~|=|::|:(?=//)|:)(\s{0,8})"""
_AFTER_OPTION = r"""(?:\\{0,8}["']\s{0,4},\s{0,8}|\s{1,8}\\?\s{0,8})(?=\S)"""
_NEXT_OPTION = r"""\\{0,8}["']?-{1,2}[A-Za-z]"""
_IN_ARN = r"arn:aws[\w:-]{0,80}:$"
_IN_USAGE = r"-[\w-]{1,40}[ =](?:[A-Z_]{1,40}:)?$"  # --user NAME:PASSWORD: What it is
_XML_VALUE = r"[^<>\n]{0,200}>([^<]*)"
# {"name": "DB_PASSWORD", "value": "x"}, ParameterKey=DbPassword,ParameterValue=x, and in XML.
_OF_A_NAME = r"""(?i)(?:name|key|id)\\{0,8}["']?\s{0,8}[=:]\s{0,8}(?:\\{0,8}["'])?$"""
_VALUE_OF_NAME = (
    r"""\\{0,8}["']?(?:\s{0,8}[,;]?\s{0,8}(?:-\s{1,4})?\\{0,8}["']?(?:Parameter)?[Vv]alue"""
    r"""\\{0,8}["']?\s{0,8}[=:]\s{0,8}|\s{0,4}/?>)"""
)
_VALUE_BEFORE_NAME = (
    r"""[Vv]alue\\{0,8}["']?\s{0,8}[=:]\s{0,8}(\\{0,8}["'])([^"'\\]{1,200})\1\s{0,8},\s{0,8}"""
    r"""\\{0,8}["']?\w{0,20}\\{0,8}["']?\s{0,8}[=:]\s{0,8}\\{0,8}["']?$"""
)
# --name /etl/DB_PASSWORD --type String --value x
_OF_AN_OPTION = r"""--(?:name|key|parameter-name)[ =]["']?[\w./:-]{0,70}$"""
_VALUE_OPTION = (
    r"""["']?(?:\s{1,8}--?\w[\w-]{0,30}(?:[ =][\w.,:/-]{1,60})?){0,3}?\s{1,8}--value[ =](?=\S)"""
)
# ("password", "x") in a list, and a call: headers.set("Authorization", "x").
_TUPLE = r"""\\{0,8}["']\s{0,4},\s{0,8}(?=[bBrRuU]?\\{0,8}["'])"""
_IN_TUPLE = (
    r"""(?:(?:^|[\s,\[({=])\(|\b(?:set|put|add|append|option|config|header|setenv"""
    r"""|setRequestHeader|addHeader|setHeader|setProperty)\()[bBrRuU]?\\{0,8}["']$"""
)
_NAMES_OF_VALUES = (
    (_OF_A_NAME, _VALUE_OF_NAME),
    (_OF_AN_OPTION, _VALUE_OPTION),
    (_IN_TUPLE, _TUPLE),
)
_CALL = r"""\(\s{0,4}(?=[bBrRuU]?["'])"""
_SETS = r"(?:[\w.-]{1,40}\.)?(?:set|with|use)"
_WHOSE = (
    r"""\s{1,4}(?:for|of)(?:\s{1,4}(?:'[^'\n]{1,80}'|"[^"\n]{1,80}"|[^\s:=,;"']{1,64})){1,4}?"""
)
# The password is x, Password for etl is x, Password for user 'etl': x
_IS = (
    r"(?:\s{1,4}(?:is|was|provided|given|supplied|received|used)(?:\s{1,4}now)?\s{0,4}:?"
    rf"|{_WHOSE}(?:\s{{1,4}}(?:is|was)(?:\s{{1,4}}now)?\s{{0,4}}:?|:))\s{{1,4}}(?=\S)"
)
_SCHEME = (
    r"""(?i)(\\{0,8}["'])?(?:basic|bearer|digest|token|negotiate|ntlm|apikey|api-key|oauth"""
    r"""|hmac|key|splunk|genielkey|sso-key|bot)\s{1,4}(?=\S)"""
)
_SIGNED = r"""\\{0,8}["']?(?:AWS4-|Signature\b|SharedKey)"""
_OTHERS = r"""arn:|alueFrom|ecretKeyRef|["'](?:type|content|id)["']\s{0,4}:"""
_NO_PHRASE = r"""[#,;=:"'({\[]"""
# Their option --secret has the name of one.
_NAMES_SECRETS = r"\b(?:docker|podman|nerdctl|buildah|pulumi|az|gcloud|kubectl|oc|modal|copilot)\b"
# token: 17 of 90
_COUNTED = r"\d{1,9}\s{0,2}(?:of|/)\s{0,2}\d{1,9}(?![\w.])"
_VERSION = r"[\w.-]{0,20}\d\.\d[\w.-]*|latest|/.*|\d{1,6}(?::\d{1,6})?"  # ${TOKEN:0:4}
_OPEN_SETTINGS = frozenset({"setx", "setx.exe", "setenv", "putenv", "ENV"})
_USERS = frozenset({"login", "user", "username", "account", "machine"})
_DIRECTIVES = frozenset(
    {"requirepass", "masterauth", "rootpw", "bindpw", "primaryauth", "auth-pass", "userpassword"}
)
_BEGINS = frozenset("\n{,(\"'->$<*|;[=#`")
# After an option in a sentence.
_OF_A_MANUAL = listed_words("and argument cannot expects flag is must needs option or requires")
# token 'x1' is invalid: a word of a parser or a name of Kubernetes has another form.
_QUOTED_KEY = r"""["'](?=[^"']{0,80}\d)(?=[^"']{0,80}[A-Za-z])[\w.~+/=-]{8,400}["']"""
# An unquoted one: no path, no address, no file.
_MIXED_KEY = r"[A-Za-z0-9_+=-]{8,400}(?=[\s,;.)]|$)"
_LETTER_BESIDE_DIGIT = r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])"
# user etl with password x: one that is no word has a digit or a sign beside its letters.
_WITH = listed_words("with using use and")
_NO_WORD = r"(?=\S{0,128}[A-Za-z])(?=\S{0,128}[\d!@#$%^&])\S{1,128}"
_LAST_WORD = r"\S{1,128}[ \t]{0,4}(?=\n|$)"
_TOLD = (SecretKind.PASSWORD, SecretKind.SECRET, SecretKind.TOKEN, SecretKind.KEY)
_CERTAIN = (SecretKind.PASSWORD, SecretKind.PASS, SecretKind.KEY, SecretKind.HEADER)
_WITH_SCHEME = (SecretKind.HEADER, SecretKind.AUTH, SecretKind.TOKEN)


class _Span(Struct, frozen=True):
    """A value in a text; ``is_open``: a list or an object whose own names decide."""

    start: int
    end: int
    is_open: bool = False


class _Name(Struct, frozen=True):
    text: str
    start: int
    end: int
    kind: SecretKind

    @property
    def is_option(self) -> bool:
        return self.text.startswith("-")


def secret_settings(text: str, ends: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Start and end of the value of each name of a secret. ``ends``: where words that have spaces
    begin and end.
    """
    # The one letter that becomes two in lower case; no stem has either.
    lower = text.replace("İ", "_").lower()
    if not any(stem in lower for stem in STEMS):
        return
    place = 0
    opened_to = 0
    for found in re.finditer(_NAME, lower):
        if found.start() < place:
            continue
        name = _setting_name(text, *found.span())
        if name is None:
            continue
        span = _setting_value(text, name, ends, may_open=found.start() >= opened_to)
        if span is None:
            continue
        if span.is_open:
            opened_to = span.end
        elif span.start < span.end:
            yield span.start, span.end
            place = span.end


def _setting_name(text: str, start: int, end: int) -> _Name | None:
    word = text[start:end].rstrip(".-")
    if len(word) > _MAX_LENGTH:
        return None
    lower = word.lower()
    kind = secret_kind(word)
    if lower in ("key", "keys", "token"):  # "API key: x"
        before = text[max(0, start - 24) : start].split(" ")
        if len(before) > 1 and before[-1] == "":
            whole = f"{before[-2]}_{word}"
            kind = secret_kind(whole) or kind
            if lower != "token" and kind is not None:
                return _Name(whole, start, start + len(word), kind)
    return None if kind is None else _Name(word, start, start + len(word), kind)


def _setting_value(
    text: str, name: _Name, ends: Mapping[int, int], *, may_open: bool
) -> _Span | None:
    """The value of a name; None: it has none, or one that is no secret."""
    before = text[max(0, name.start - _MAX_LOOK_BACK) : name.start]
    earlier = text[max(0, name.start - _MAX_EARLIER) : name.start]
    if name.text == "--secret" and re.search(_NAMES_SECRETS, earlier):
        return None
    if before.endswith("<") and (element := re.compile(_XML_VALUE).match(text, name.end)):
        start, end = element.span(1)
        return _span_unless_harmless(text, start, end, name.kind, is_quoted=True)
    if "alue" in earlier and (member := re.search(_VALUE_BEFORE_NAME, earlier)):
        shift = name.start - len(earlier)
        start, end = shift + member.start(2), shift + member.end(2)
        return _span_unless_harmless(text, start, end, name.kind, is_quoted=True)
    sign = re.compile(_SIGN).match(text, name.end)
    if sign and sign[3] not in ("==", "=~", "::") and text[sign.end() : sign.end() + 2] != "//":
        is_announced = _may_have_value(text, name, sign, before)
        return (
            _value_after_sign(text, name, sign, before, ends, may_open=may_open)
            if is_announced
            else None
        )
    place = _value_start(text, name, before)
    return None if place is None else _value_without_sign(text, name, place, ends)


def _span_unless_harmless(
    text: str, start: int, end: int, kind: SecretKind, *, is_quoted: bool, is_prose: bool = False
) -> _Span | None:
    value = text[start:end]
    if is_harmless(value, kind, is_quoted=is_quoted, is_prose=is_prose):
        return None
    return _Span(start, end)


def _value_without_sign(
    text: str, name: _Name, place: int, ends: Mapping[int, int]
) -> _Span | None:
    """The value of a name that no sign follows."""
    start, end, is_quoted = value_span(text, place)
    if place in ends:
        start, end = place, ends[place]
    if name.is_option and text[start:end] in _OF_A_MANUAL:
        return None
    is_prose = not name.is_option
    return _span_unless_harmless(
        text, start, end, name.kind, is_quoted=is_quoted, is_prose=is_prose
    )


def _may_have_value(text: str, name: _Name, sign: re.Match[str], before: str) -> bool:
    """Whether the sign after a name is followed by its value."""
    if sign[3] == ":" and not _may_be_member(name, before, sign):
        return False
    if name.kind is SecretKind.SIGNATURE and not sign[1] and (sign[3] != "=" or sign[4]):
        return False
    return not text.startswith(("{{", "{%"), sign.end())


def _value_after_sign(
    text: str,
    name: _Name,
    sign: re.Match[str],
    before: str,
    ends: Mapping[int, int],
    *,
    may_open: bool,
) -> _Span | None:
    place = sign.end()
    if name.kind in _WITH_SCHEME:
        if re.compile(_SIGNED).match(text, place):
            return None  # its parts have names
        if scheme := re.compile(_SCHEME).match(text, place):
            start, end, is_quoted = value_span(text, scheme.end())
            return _span_unless_harmless(text, start, end, SecretKind.HEADER, is_quoted=is_quoted)
    if name.kind is SecretKind.TOKEN and re.compile(_COUNTED).match(text, place):
        return None
    if text.startswith(("[", "{"), place):
        return _secret_container(text, place, name) if may_open else None
    is_line = _extends_to_line_end(text, name, sign, before)
    in_address = before.endswith(("?", "&", "#"))
    start, end, is_quoted = value_span(text, place, in_address=in_address, is_line=is_line)
    if name.is_option and (whole := ends.get(name.start)) and not is_quoted:
        end = whole  # a word of a command line: --password=x y
    is_prose = sign[3] == ":" and not sign[1] and bool(sign[4])
    if _is_of_a_sentence(text[start:end], name, sign, is_line=is_line, is_prose=is_prose):
        return None
    return _span_unless_harmless(
        text, start, end, name.kind, is_quoted=is_quoted, is_prose=is_prose
    )


def _is_of_a_sentence(
    value: str, name: _Name, sign: re.Match[str], *, is_line: bool, is_prose: bool
) -> bool:
    """Whether a value begins a sentence, or is the version of an image or the folder of a volume
    with the name of a secret.
    """
    if is_line and name.kind is not SecretKind.COOKIE:
        first = value[:_MAX_LOOK_BACK].partition(" ")[0]
        return is_harmless(first, name.kind, is_quoted=False, is_prose=is_prose)
    if sign[3] != ":" or sign[1] or sign[4]:
        return False
    is_certain = name.kind in (SecretKind.PASSWORD, SecretKind.KEY)
    return not is_certain and re.fullmatch(_VERSION, value[:_MAX_EARLIER]) is not None


def _may_be_member(name: _Name, before: str, sign: re.Match[str]) -> bool:
    """Whether a name before a colon is a setting's, a header's or a member's, not a sentence's."""
    is_in_usage = name.text in PLACES_OF_VALUES and re.search(_IN_USAGE, before)
    if is_in_usage or re.search(_IN_ARN, before):
        return False
    if sign[1]:
        return True
    if not sign[4]:
        return sign.end() < len(sign.string)
    if name.text == "PASS":  # a test's word
        return False
    is_compound_name = is_compound(name.text) and name.kind is not SecretKind.SIGNATURE
    if name.kind in _CERTAIN or is_compound_name:
        return True
    begun = before.rstrip(" \t")
    return not begun or begun[-1] in _BEGINS or begun.rpartition(" ")[2].startswith("-")


def _extends_to_line_end(text: str, name: _Name, sign: re.Match[str], before: str) -> bool:
    """Whether a value goes on to the end of the line: a few words after a setting's name."""
    if name.kind is SecretKind.COOKIE:
        return sign[3] == ":"
    if name.kind is not SecretKind.PASSWORD or not sign[4]:
        return False
    begun = before.rpartition("\n")[2].strip(" \t")
    if begun not in ("", "-") or len(before) == _MAX_LOOK_BACK:
        return False
    line = text[sign.end() : sign.end() + _MAX_EARLIER].partition("\n")[0]
    return re.search(_NO_PHRASE, line) is None and len(line.split()) <= _MAX_WORDS


def _secret_container(text: str, place: int, name: _Name) -> _Span | None:
    """A list or an object of secrets; one that may hold other things is not masked whole."""
    if re.compile(r"\{\w{0,64}\}").match(text, place):
        return None  # a template's variable
    end = container_end(text, place)
    inner = text[place : min(end, place + _MAX_INNER)]
    if is_harmless(inner, name.kind, is_quoted=True, is_prose=False):
        return None
    may_hold_others = name.kind in (SecretKind.AUTH, SecretKind.COOKIE, SecretKind.SIGNATURE)
    if may_hold_others or re.search(_OTHERS, inner):
        return _Span(place, end, is_open=True)
    closing = end - place > 1 and text[end - 1] in "]}"
    return _Span(place + 1, end - closing)


def _value_start(text: str, name: _Name, before: str) -> int | None:
    """Where the value of a name without a sign begins."""
    if name.is_option:
        found = re.compile(_AFTER_OPTION).match(text, name.end)
        is_value = found and not re.compile(_NEXT_OPTION).match(text, found.end())
        return found.end() if found and is_value else None
    for pattern, what_follows in _NAMES_OF_VALUES:
        if re.search(pattern, before) and (found := re.compile(what_follows).match(text, name.end)):
            return found.end()
    found = re.compile(_CALL).match(text, name.end)
    if found and (name.text.isupper() or re.match(_SETS, name.text)):
        return found.end()
    found = re.compile(_IS).match(text, name.end)
    if found and name.kind in _TOLD:
        start, end, is_quoted = value_span(text, found.end())
        value = text[start:end]
        is_word = (value.isalpha() and value.islower()) or value.isdigit()
        return found.end() if is_quoted or not is_word else None
    found = re.compile(r"[ \t]{1,4}(?=\S)").match(text, name.end)
    return found.end() if found and _is_next_word_value(text, name, before, found.end()) else None


def _is_next_word_value(text: str, name: _Name, before: str, place: int) -> bool:
    """Whether the next word is the value of a name: of a setting, of .netrc, or in quotes."""
    if text[place] in "-|&;)":
        return False
    words = ["", "", *before.rpartition("\n")[2].split()]
    if name.text.lower() in _DIRECTIVES or words[-1] in _OPEN_SETTINGS:
        return True
    if words[-1] in ("set", "-set") or (words[-2] == "set" and words[-1].startswith("-")):
        return is_compound(name.text) and not text.startswith(("FOR ", "for "), place)
    if name.text == "SECRET":
        return text[place] == "'"  # of SQL
    if name.kind in (SecretKind.TOKEN, SecretKind.KEY):
        is_key = re.compile(_QUOTED_KEY).match(text, place) or _is_followed_by_mixed_word(
            text, name, place
        )
        return words[-1].lower() != "unexpected" and bool(is_key)
    is_password = name.kind in (SecretKind.PASSWORD, SecretKind.PASS)
    return is_password and _is_followed_by_password(text, name, words, place)


def _is_followed_by_password(text: str, name: _Name, words: list[str], place: int) -> bool:
    """Whether the next word is a password; ``words`` are before its name in the line."""
    is_quoted = text[place] in "\"'" and not text.startswith(" ", place + 1)
    if is_quoted or words[-2] in _USERS:
        return True
    if words[-1].lower() in _WITH:
        return re.compile(_NO_WORD).match(text, place) is not None
    # A line of a file of settings, such as Spark's: spark.jdbc.password x
    is_setting = "." in name.text and words == ["", ""]
    return is_setting and re.compile(_LAST_WORD).match(text, place) is not None


def _is_followed_by_mixed_word(text: str, name: _Name, place: int) -> bool:
    """Whether letters and digits follow the name of a key or a token in a sentence as no word has
    them: "using token a1b2c3d4e5f6".
    """
    found = re.compile(_MIXED_KEY).match(text, place)
    if found is None:
        return False
    changes = len(re.findall(_LETTER_BESIDE_DIGIT, found[0]))
    if name.kind is SecretKind.KEY:
        return changes > 1 or (changes > 0 and found[0].isupper())
    return changes > 1 and found[0].isalnum()
