"""The stems of the names that announce a secret (``secret_names``).

Most texts have none, and need no more: this module imports nothing.
"""

# In lower case, each name of a secret has one.
STEMS = (
    *("pass", "pwd", "pw", "secret", "token", "key", "cred", "auth", "cookie", "sig"),
    *("jwt", "psk", "otp", "sess", "bearer", "appid"),
)
