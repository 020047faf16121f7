"""The options and the arguments of programs whose value is a secret though its name says nothing.

From the manuals of the programs; an option that is secret by its name is in no row. ``-p`` is a
folder's or a port's for other programs.
"""

from collections.abc import Mapping

from msgspec import Struct


class SecretProgram(Struct, frozen=True):
    """What of a program's command line is secret.

    ``options``: the options whose value is secret, each with a character that the value needs, as
    the colon of ``USER:PASSWORD``, or the word before it, as ``key:``; empty: any value.
    ``is_joined``: the value may follow an option of one letter without a space, as in ``-pX``.
    ``asks``: alone, an option of one letter makes the
    program ask for the value, and the next word is another one. ``arguments``: after these words,
    the first secret argument, counted from 1, and all after it. ``pairs_after``: after these words,
    pairs of a name and a value follow; None: nowhere. ``assigned_after``: after these words, the
    value of each ``NAME=VALUE`` is secret. ``where``: the options are secret only in a command that
    matches this pattern; empty: in each.
    """

    options: Mapping[str, str] = {}
    is_joined: bool = True
    asks: bool = False
    arguments: Mapping[tuple[str, ...], int] = {}
    pairs_after: tuple[str, ...] | None = None
    assigned_after: tuple[str, ...] | None = None
    where: str = ""


def _secret_options(*names: str, needs: str = "", is_joined: bool = True) -> SecretProgram:
    return SecretProgram(dict.fromkeys(names, needs), is_joined)


def _program_with_secret_argument(*words: str, first: int = 1) -> SecretProgram:
    return SecretProgram(arguments={words: first})


NO_PROGRAM = SecretProgram()
_CURL = SecretProgram(
    {
        **dict.fromkeys(("-u", "-U", "--user", "--proxy-user"), ":"),
        **dict.fromkeys(("-E", "--cert", "--proxy-cert"), ":"),
        **dict.fromkeys(("-b", "--cookie"), "="),
        **dict.fromkeys(("--pass", "--proxy-pass", "--tlspassword", "--oauth2-bearer"), ""),
    }
)
_USER_AND_PASSWORD = {"-U": "%", "--user": "%"}  # of Samba
_CREDENTIALS = {
    f"--{side}creds": ":" for side in ("", "src-", "dest-")
}  # of images: Skopeo, Buildah, Podman
_PASSWORD = _secret_options("-p")
_ASKED_PASSWORD = SecretProgram({"-p": ""}, asks=True)
_UPPER_PASSWORD = _secret_options("-P")
# Of Systems Manager; one that is only overwritten keeps its type.
_SECURE_PARAMETER = r"^(?!.*\s--type[ =]String).*\sput-parameter\s"
_CONFIGURED = SecretProgram(pairs_after=("config",))
# USER/PASSWORD@DATABASE is a word of their own.
ORACLE = frozenset({"sqlplus", "sqlldr", "impdp", "expdp", "rman", "exp", "imp"})
# After one of these, the options are no longer those of a program before it.
_ORDINARY = (
    "ssh scp sftp rsync mkdir cp mv tar ps make python python3 node java sh bash kill sort uniq"
    " psql pg_dump pg_restore spark-submit torchrun gcc cmake install touch"
)
_TABLE: Mapping[str, SecretProgram] = {
    # Databases and caches.
    "mysql mysqldump mysqlimport mysqlcheck mysqlshow mysqlslap": _ASKED_PASSWORD,
    "mariadb mariadb-dump mariadb-import mysqlsh": _ASKED_PASSWORD,
    "mysqladmin mariadb-admin": SecretProgram(
        {"-p": ""}, asks=True, arguments={("password",): 1, ("old-password",): 1}
    ),
    "mycli xtrabackup mariabackup": _PASSWORD,
    "mongo mongosh mongodump mongorestore mongoexport mongoimport mongostat mongotop": _PASSWORD,
    "cqlsh beeline cypher-shell rabbitmqadmin sqlline sshpass 7z 7za 7zr 7zz rar unrar": _PASSWORD,
    "isql tsql bcp sqlcmd mssql-cli ipmitool zip unzip": _UPPER_PASSWORD,
    "ab mosquitto_pub mosquitto_sub": _UPPER_PASSWORD,
    "redis-cli valkey-cli keydb-cli": SecretProgram(
        {"-a": "", "--pass": ""}, arguments={("AUTH",): 1, ("auth",): 1}, pairs_after=("set",)
    ),
    "rabbitmqctl": SecretProgram(
        arguments={("add_user",): 2, ("change_password",): 2, ("authenticate_user",): 2}
    ),
    "db2": _secret_options("using"),
    "nodetool plink pscp psftp pw-plink": _secret_options("-pw", is_joined=False),
    "neo4j-admin": _program_with_secret_argument("set-initial-password"),
    "influx": _secret_options("-t", "-password"),
    "etcdctl": SecretProgram({"--user": ":"}, pairs_after=("put",)),
    "consul": SecretProgram(pairs_after=("kv", "put")),
    # Directories, shares and networks.
    "ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldapcompare kadmin vsql": _secret_options(
        "-w"
    ),
    "ldappasswd": _secret_options("-w", "-s", "-a"),
    "smbclient rpcclient winexe smbget smbmap nmblookup wmic-client": SecretProgram(
        {**_USER_AND_PASSWORD, "--password": ""}
    ),
    "net net.exe": SecretProgram({"-U": "%"}, arguments={("use",): 2, ("user",): 2}),
    "snmpwalk snmpget snmpset snmpbulkwalk snmptrap": _secret_options("-c", "-A", "-X"),
    "lftp": _secret_options("-u", needs=","),
    "ncftpget ncftpput ncftp": _PASSWORD,
    "xfreerdp xfreerdp3 wfreerdp": _secret_options("/p:", "/gp:"),
    "rdesktop psexec psexec.exe psexec64": _PASSWORD,
    "schtasks schtasks.exe": _secret_options("/rp", "/RP", "/p", "/P", is_joined=False),
    "wpa_passphrase": _program_with_secret_argument(first=2),
    "nmcli": SecretProgram(pairs_after=("connect",)),
    # Archives, keys and users.
    "openssl": SecretProgram(
        {
            **dict.fromkeys(("-k", "-K", "-pass", "-passin", "-passout", "-hmac", "-psk"), ""),
            "-srppass": "",
            **dict.fromkeys(("-macopt", "-kdfopt"), "key:"),
        },
        is_joined=False,
        arguments={("passwd",): 1},
    ),
    "keytool jarsigner": _secret_options(
        "-storepass", "-keypass", "-srcstorepass", "-deststorepass", is_joined=False
    ),
    "htpasswd": SecretProgram(
        arguments={("-b",): 3, ("-bc",): 3, ("-cb",): 3, ("-Bb",): 3, ("-nb",): 2}
    ),
    "pdftotext pdfinfo pdfimages pdftoppm": _secret_options("-upw", "-opw", is_joined=False),
    "pdftk": _secret_options("input_pw", "user_pw", "owner_pw", is_joined=False),
    "ssh-keygen": _secret_options("-N", "-P"),
    "useradd usermod adduser": _PASSWORD,
    # HTTP.
    "curl": _CURL,
    "http https xh xhs": _secret_options("-a", "--auth", needs=":"),
    "aria2c": _secret_options("--http-passwd", "--ftp-passwd", "--rpc-secret"),
    # Images and clusters; -p of their other commands is a port's.
    "docker podman nerdctl helm oras crane regctl": SecretProgram(_CREDENTIALS),
    "skopeo buildah": SecretProgram(_CREDENTIALS),
    "kubectl oc": SecretProgram(assigned_after=("create", "secret")),
    "vault bao": SecretProgram(
        arguments={("login",): 1, ("operator", "unseal"): 1, ("unwrap",): 1},
        assigned_after=("kv", "put"),
    ),
    # Clouds.
    "aws": SecretProgram(
        {"--value": "", "--plaintext": ""},
        pairs_after=("set",),
        where=rf"{_SECURE_PARAMETER}|\skms\s",
    ),
    "az": SecretProgram(
        {"--value": ""},
        assigned_after=("--secure-environment-variables",),
        where=r"\bsecret set\b|\s--secret(?:[ =]true)?\s",
    ),
    "gcloud": _CONFIGURED,
    "doctl": _secret_options("-t"),
    "heroku fly flyctl": SecretProgram(assigned_after=("secrets", "set")),
    "rclone": SecretProgram(pairs_after=("config",), arguments={("obscure",): 1}),
    "mc mcli": SecretProgram(arguments={("alias", "set"): 4, ("config", "host", "add"): 4}),
    # Packages and tools of projects.
    "twine": _PASSWORD,
    "poetry": SecretProgram({"-p": ""}, arguments={("config",): 3}, pairs_after=("config",)),
    "git npm yarn pnpm pip pip3 conda bundle composer gem": _CONFIGURED,
    "crudini": _CONFIGURED,
    "pulumi": SecretProgram(
        arguments={("config", "set", "--secret"): 2}, pairs_after=("config", "set")
    ),
    "dvc": SecretProgram(pairs_after=("remote", "modify")),
    "snap": SecretProgram(pairs_after=("set",)),
    "cargo wandb comet": _program_with_secret_argument("login"),
    "prefect": _secret_options("-k", "--key", is_joined=False),
    "kaggle": _secret_options("-v", is_joined=False),
    "papermill": SecretProgram(pairs_after=("-p",)),
    "ngrok": SecretProgram(arguments={("authtoken",): 1, ("config", "add-authtoken"): 1}),
    "glab": _secret_options("-t"),
    "nuget dotnet": _secret_options("-k", "-ApiKey", "--api-key", is_joined=False),
    "ansible-vault": _program_with_secret_argument("encrypt_string"),
    "bw": SecretProgram(arguments={("login",): 2, ("unlock",): 1}),
    "chamber": SecretProgram(arguments={("write",): 3}),
    "credstash": SecretProgram(arguments={("put",): 2}),
    "jq": SecretProgram(pairs_after=("--arg",)),
    # Their arguments are read for their own sake.
    **dict.fromkeys((" ".join(ORACLE), _ORDINARY), NO_PROGRAM),
}
PROGRAMS: Mapping[str, SecretProgram] = {
    name: program for names, program in _TABLE.items() for name in names.split()
}
# After this word, -p is a password's, whatever the program.
LOGIN = "login"
# Of programs with secret arguments.
PROGRAM_NAMES = (
    ORACLE | {LOGIN} | {name for name, program in PROGRAMS.items() if program is not NO_PROGRAM}
)
SEPARATORS = frozenset({";", "|", "||", "&&", "&"})
