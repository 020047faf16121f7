"""Which names of options, variables, settings, headers and members announce a secret.

A name is read in words: ``dbPassword``, ``DB_PASSWORD`` and ``--db-password`` are the same. The
last noun decides: a ``password_file`` is a file, and ``max_tokens`` is a number.
"""

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

_MAX_NAME_LENGTH = 128


def listed_words(text: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(text.split())


class SecretKind(Enum):
    """What a name announces; how much its value must look like a secret depends on it."""

    PASSWORD = "password"  # noqa: S105  a word
    PASS = "pass"  # noqa: S105  a word: a test's and a loop's, too
    SECRET = "secret"  # noqa: S105  a word
    KEY = "key"
    TOKEN = "token"  # noqa: S105  a word
    TOKENS = "tokens"  # a number of words of a text is one, too
    AUTH = "auth"
    HEADER = "header"
    COOKIE = "cookie"
    SIGNATURE = "signature"
    ID = "id"  # a key only where its value has the form of one
    SECRET_ID = "secret_id"  # noqa: S105  the same; a UUID is one, too


_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"
_BEFORE_PASS = listed_words(
    "admin app auth become bind cert db dest dst enc es ftp http imap kafka key ldap login mail"
    " master mongo my mysql pg proxy rabbit redis require rmq root sftp smtp sql src ssh store"
    " sudo user web"
)
_KEYS = tuple(
    f"{before}key"
    for before in (
        *("api", "access", "account", "auth", "encryption", "fernet", "master"),
        *("private", "secret", "signing", "sharedaccess", "subscription"),
    )
)
_SHORT = ("pass", "pw")
_ENDINGS = (
    *((ending, SecretKind.PASSWORD) for ending in ("password", "passwd", "passphrase")),
    *((ending, SecretKind.PASSWORD) for ending in ("passcode", "pwd")),
    *((ending, SecretKind.PASSWORD) for ending in ("passwort", "kennwort", "wachtwoord")),
    ("secret", SecretKind.SECRET),
    ("token", SecretKind.TOKEN),
    *((ending, SecretKind.KEY) for ending in _KEYS),
)
_NOUNS: Mapping[str, SecretKind] = {
    **dict.fromkeys(("psk", "otp", "totp", "passkey", "pw", "senha"), SecretKind.PASSWORD),
    **dict.fromkeys(("credential", "cred"), SecretKind.KEY),
    **dict.fromkeys(("jwt", "bearer", "sessionid", "sessid"), SecretKind.TOKEN),
    **dict.fromkeys(("jsessionid", "phpsessid", "sessionkey"), SecretKind.TOKEN),
    **dict.fromkeys(("auth", "masterauth"), SecretKind.AUTH),
    "authorization": SecretKind.HEADER,
    "cookie": SecretKind.COOKIE,
    **dict.fromkeys(("sig", "signature"), SecretKind.SIGNATURE),
    "appid": SecretKind.ID,  # of OpenWeather: its key
}
# A name of two words: Vault's half of a pair is a UUID, PagerDuty's key has 32 digits. In AWS and
# in queues, both are names.
_KINDS_OF_PAIRS: Mapping[tuple[str, ...], SecretKind] = {
    ("secret", "id"): SecretKind.SECRET_ID,
    ("routing", "key"): SecretKind.ID,
}
_BEFORE_KEY = listed_words(
    "access account aes anthropic api app application auth azure cipher cohere consumer crypt"
    " crypto datadog dd decryption deploy encrypt encryption fernet functions gemini github groq"
    " hmac huggingface ingest ingestion integration jwt license licence master mailgun mistral"
    " openai pinecone private secret security sendgrid shared signing storage stripe"
    " subscription twilio wandb webhook"
)
_MEASURES = listed_words(
    "accepted added audio avg batched budget cached completion context count decode draft eval"
    " generated image input limit max mean min n new num number output per prefill prompt rate"
    " reasoning remaining skip special speculative stop target text total train used valid vocab"
    " window"
)
_OF_A_TEXT = listed_words(
    "bos cls end eos eot fim image last mask next pad prev separator sep special start stop think"
    " unk video vocab word starting continuation page marker cursor"
)
# Before the noun: the value is no secret, but a word of a text, or a name in Kubernetes.
_OTHER_BEFORE = {SecretKind.TOKEN: _OF_A_TEXT, SecretKind.SECRET: frozenset({"existing", "pull"})}
_VERBS = listed_words(
    "allow ask change check disable enable forgot generate has hide is list need needs no print"
    " prompt random require required requires reset show skip use using verify with without"
)
# Who has such a token may do what the verb says: reset_token=…
_VERBS_OF_TOKENS = listed_words("change forgot reset verify")
# Words after the noun with which the value is still the secret.
_STILL_SECRET = listed_words(
    "again base base64 b64 code confirm confirmation current data decoded default dev enc encoded"
    " encrypted hash hashed hex live local main new old override plain plaintext previous primary"
    " prod production pypi raw repeat sandbox secondary stage staging str string temp test text tmp"
    " value values"
)
# Words after the noun with which the value is something else, such as a file.
_NO_LONGER_SECRET = listed_words(
    "age algo algorithm algorithms aliases arn arns at attempts auth authentication backend"
    " bucket callback change changed check checked checks class cmd col column command config"
    " count counts created days dir directory disabled email embedding embeddings enabled"
    " encoder encoding endpoint engine env error errors exists expiration expire expired"
    " expires expiry failed field file filename files form format free from function generator"
    " group hasher header helper hint host id ids index invalid iterations key keyring kind"
    " label len length less lifetime limit link location lookup manager managers max message"
    " metadata method min missing mode mount name names num number only page path paths"
    " placeholder policies policy processed project prompt protected protection provider"
    " providers ref reference refs region required requirements reset retries rotated rotation"
    " rule rules scan scanned scanner scanning scope scopes seconds section selector server"
    " service size skipped source src state status stdin store strength supplier table"
    " template timeout title ttl type types updated uri url urls valid validated validation"
    " validator validators validity var variable verified version versions volume volumes"
)


@lru_cache(maxsize=512)
def secret_kind(name: str) -> SecretKind | None:
    """What a name announces; None: no secret."""
    if len(name) > _MAX_NAME_LENGTH or name == "user.signingkey":  # of Git: an identifier
        return None
    words = [word.lower() for word in re.findall(_WORDS, name)]
    kind = _KINDS_OF_PAIRS.get(tuple(words[-2:]))
    if kind is not None:
        return kind
    for place in range(len(words) - 1, -1, -1):
        kind = _secret_noun(words, place)
        if kind is not None:
            return None if _is_about(name, words, place, kind) else kind
    return None


def is_compound(name: str) -> bool:
    """Whether a name has several words, which no sentence writes so: ``client_secret``."""
    words = re.findall(_WORDS, name)
    return len(words) > 1 or name.isupper() or name.lower() in _KEYS


def _secret_noun(words: list[str], place: int) -> SecretKind | None:
    """What the word at a place is for a secret; None: another word."""
    word = words[place]
    one = word if word.endswith("ss") else word.removesuffix("s")
    kind = _NOUNS.get(one)
    if kind is None:
        kind = next((kind for ending, kind in _ENDINGS if one.endswith(ending)), None)
    if kind is SecretKind.TOKEN and word != one:
        return SecretKind.TOKENS
    if kind is not None:
        return kind
    if word == "pass":
        return SecretKind.PASS if place == 0 else SecretKind.PASSWORD
    if word.endswith(_SHORT) and word.removesuffix("pw").removesuffix("pass") in _BEFORE_PASS:
        return SecretKind.PASSWORD
    is_key = one == "key" and place > 0 and words[place - 1] in _BEFORE_KEY
    return SecretKind.KEY if is_key else None


def _is_about(name: str, words: list[str], place: int, kind: SecretKind) -> bool:
    """Whether a name with a noun of a secret is that of something about the secret."""
    before, after = words[:place], words[place + 1 :]
    last = before[-1] if before else ""
    if before and before[0] in _VERBS:
        return kind is not SecretKind.TOKEN or before[0] not in _VERBS_OF_TOKENS
    if kind is SecretKind.TOKENS and not _MEASURES.isdisjoint(words):
        return True
    if last in _OTHER_BEFORE.get(kind, ()):
        return True
    if kind is SecretKind.KEY:
        is_id = after == ["id"] and last == "access"  # the half of a pair
        # fs.azure.account.key.ACCOUNT.dfs.core.windows.net
        if is_id or after[-2:] == ["windows", "net"]:
            return False
    told = {word for word in after if not word.isdigit()}
    if kind in (SecretKind.PASSWORD, SecretKind.SECRET) or name.isupper():
        return not _NO_LONGER_SECRET.isdisjoint(told)
    return not _STILL_SECRET.issuperset(told)
