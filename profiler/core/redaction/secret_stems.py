"""The stems of the names that announce a secret (``secret_names``), and what addresses of webhooks
have.

Most texts have none, and need no more: this module imports nothing.
"""

# In lower case, each name of a secret has one.
STEMS = (
    *("pass", "pwd", "pw", "secret", "token", "key", "cred", "auth", "cookie", "sig"),
    *("jwt", "psk", "otp", "sess", "bearer", "appid"),
    *("kennwort", "wachtwoord", "senha"),
)
# Each address of a webhook, of an intake of logs or of a heartbeat, has one.
SIGNS_OF_HOOKS = (
    *("hook", "telegram", "pagerduty.", "datadoghq.", "sentry.", "hc-ping.", "nosnch."),
    *("cronitor.", "ifttt.", "loggly.", "sumologic.", "victorops."),
)
