"""Whether what is called so is a secret: `db_pass`, `--api-key`, `ssl.keyPassword`, `REDIS_PW`. The one place for it.

A name is split into its words (at `_`, `-`, `.`, digits, and where camelCase has them), and judged by their meaning:
`max_tokens`, `eos_token`, `tokenizer`, `token_budget`, `bypass`, `author`, `routing_key` and `secret_name` are none.
"""

from __future__ import annotations

import re
from functools import lru_cache

STEMS = (
    "key", "token", "secret", "pass", "pwd", "pw", "cred", "auth", "cookie", "salt", "psk", "otp", "jwt", "bearer",
    "_pat",
)  # fmt: skip
"""One of these, in lower case, is in the name of every secret."""


def words(text: str) -> frozenset[str]:
    """A set of words, as they are written here."""
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ALWAYS = words("""
    password passwords passwd passphrase passphrases pwd pswd passwort passcode passkey pw psk secret secrets
    credential credentials cred creds jwt bearer cookie cookies otp totp authorization apikey apikeys authtoken
    accesstoken privkey salt
""")
"""A name with one of these is a secret's, unless it ends with one of `_ABOUT`."""
_CONTAINS = re.compile(r"passw(?:or)?d|passphrase|secret|credential")
"""Where words are written together: `mypassword`, `clientsecret`."""
_ABOUT = words("""
    name names file files filename path paths dir directory id ids type types kind count counts num len length
    size sizes limit limits budget url uri endpoint host port method mode format enabled required timeout ttl
    seconds expiry expires expiration policy version ref refs provider providers algorithm algo issuer audience
    scope scopes usage rate index map mapping mask pattern class error errors field fields manager store backend
    rotation
""")
"""What is told about a secret, and is none."""
_ITS_VALUE = words("""
    data value values b64 base64 hex pem plain plaintext raw string str header old new current previous backup
    prod dev staging test live main primary secondary default env hash encoded v
""")
"""Words at the end that change nothing: `client-key-data`, `API_KEY_PROD`."""
_SWITCHES = words("""
    enable disable no use require requires without skip allow is has return show hide
""")
"""Words at the start of a setting that turns something on or off."""
_OF_SECRETS = words("""
    api auth oauth access hf hub huggingface bearer refresh session csrf xsrf secret private priv ssh account
    shared master encryption enc signing sign license service storage admin root user client github gitlab wandb
    openai aws azure gcp google vault slack id
""")
"""Before `key` or `token`: it is one that opens something, whatever else the name says."""
_OF_TEXT = words("""
    bos eos pad padding unk cls sep mask image video audio vision mm media special stop start end begin think
    thinking reasoning tool call function output input prompt prompts completion generation next first last per
    each total max min num number batched draft drafted spec speculative accepted rejected emitted bonus
    recovered sampled new cached computed scheduled external local preempted recomputed placeholder delimiter
    separator vocab word sub byte added extra control text patch time latency throughput inter single one answer
    request requests lora kv cache prefill decode stats model budget limit language unknown lm recompute sleep
    queued block blocks encoder decoder return ignore current multimodal generated avg mean median active load
    delta
""")
"""Before `token`: it is a piece of text."""
_PLAIN_KEYS = words("""
    public pub cache caches primary foreign sort routing route partition group dict hash map block transfer
    request lookup json label metric metrics config state param parameter tensor weight layer module query value
    index row column missing unexpected mm lora adapter remote prefix answer translation kv idempotency dedup
    extra duplicate unknown required optional invalid object registry sorted page event field feature item entry
    by topology video image audio prompt text data fn reward taint toleration annotation selector affinity node
    num max min head heads qk pre post norm shape first last arg
""")
"""Before `key`: it opens nothing."""
_PASSES = words("""
    by com encom sur tres over under im pre post fwd bwd forward backward grad first second single multi one two
    fusion fuse inductor compile compilation noop opt optimization custom low high band parallelism cleanup each
    per last next every this render test
""")
"""Before `pass`: a way past something, or one run over it."""
_DIRECTORIES = frozenset({"PWD", "OLDPWD"})
_GLUED = re.compile(r"(\w+)(tokens?|pass|keys?)")


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Whether a key, a flag, a variable or a label of this name holds a secret."""
    return kind(name) is not None


@lru_cache(4096)
def kind(name: str) -> str | None:
    """What such a secret is counted as: "password", "authorization", "cookie" or "api-key"; None: it is none."""
    if name in _DIRECTORIES:
        return None
    parts = [part for word in _WORD.findall(name) for part in _parts(word.lower())]
    if not parts or parts[0] in _SWITCHES:
        return None
    while len(parts) > 1 and parts[-1] in _ITS_VALUE:
        parts.pop()
    head, before = parts[-1], frozenset(parts[:-1])
    if head in _ABOUT and parts[-2:] != ["secret", "id"]:
        return None
    for word in parts:
        if word in _ALWAYS or _CONTAINS.search(word):
            return _KINDS.get(word, "password" if word.startswith(("p", "salt")) or "passw" in word else "api-key")
    if head in ("pass", "phrase") and (head == "pass" or "pass" in before):
        return None if before & _PASSES else "password"
    if head == "pat":  # a personal access token
        return "api-key" if before & _OF_SECRETS else None
    if head in ("auth", "oauth", "authentication"):
        return "authorization"
    if head in ("token", "tokens"):
        return "api-key" if before & _OF_SECRETS or not before & _OF_TEXT else None
    if head == "keys" and not before & _OF_SECRETS:
        return None
    if head in ("key", "keys"):
        return "api-key" if before & _OF_SECRETS or not before & _PLAIN_KEYS else None
    return None


_KINDS = {"cookie": "cookie", "cookies": "cookie", "authorization": "authorization", "bearer": "authorization"}


def _parts(word: str) -> tuple[str, ...]:
    """A word, or the two that it is written together of: `dbpass`, `hftoken`."""
    found = _GLUED.fullmatch(word)
    if found is None or word in _ALWAYS:
        return (word,)
    if found[2] not in ("token", "pass") and found[1] not in _OF_SECRETS:
        return (word,)  # monkey, hotkey, pubkey, fastokens
    return found[1], found[2]
