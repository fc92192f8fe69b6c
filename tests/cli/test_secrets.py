"""No command writes a key's secret, or a token, into the ledger, wherever somebody puts it; and no line repeats it."""

import pytest

KEY = "lp_" + "a1" * 26
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5AY29ycC5jb20ifQ.xhYxl3fGYGPZ2LXvJmPCTg"  # {"alg":"HS256"}, {"sub":"ann@corp.com"}
SET = ("budget", "set", "--scope", "org", "--window", "day", "--limit-usd", "5")

COMMANDS = {
    "reason": lambda secret: ("correct", "c2", "--usd", "1", "--reason", f"key {secret} leaked"),
    "task": lambda secret: ("task", "new", secret, "--budget", "5"),
    "task's user": lambda secret: ("task", "new", "fresh", "--budget", "5", "--user", f"ann {secret}"),
    "task to close": lambda secret: ("task", "close", secret),
    "task of a run": lambda secret: ("run", "--task", secret, "--budget", "5", "--", "true"),
    "budget": lambda secret: (*SET[:2], secret, *SET[2:]),
    "a task's budget": lambda secret: ("budget", "set", secret, "--limit-usd", "5"),
    "users": lambda secret: (*SET[:2], "b", *SET[2:], "--users", f"ann,{secret}"),
    "groups": lambda secret: (*SET[:2], "b", *SET[2:], "--groups", secret),
    "rings": lambda secret: (*SET[:2], "b", *SET[2:], "--rings", secret),
    "projects": lambda secret: (*SET[:2], "b", *SET[2:], "--projects", secret),
    "tags": lambda secret: (*SET[:2], "b", *SET[2:], "--tags", f"env={secret}"),
    "models": lambda secret: (*SET[:2], "b", *SET[2:], "--models", f"{secret}*"),
    "providers": lambda secret: (*SET[:2], "b", *SET[2:], "--providers", secret),
    "key's user": lambda secret: ("key", "create", "--user", secret),
    "key's tag": lambda secret: ("key", "create", "--user", "ann", "--tag", f"env={secret}"),
    "key's name": lambda secret: ("key", "create", "--user", "ann", "--name", f"was {secret}"),
}
WORDS = {"a task's budget": "no budget and no task is called so"}


def kept(home):
    return b"".join(path.read_bytes() for path in home.ledger.parent.iterdir() if path.is_file())


@pytest.mark.parametrize("secret", [KEY, JWT], ids=["key", "token"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_secret_is_refused_in_one_line_and_not_kept(lockpin, ledger, home, command, secret):
    done = lockpin(*COMMANDS[command](secret))

    assert done.returncode in (1, 2)
    assert WORDS.get(command, "has a key's secret or a token in it; leave that out") in done.stderr
    assert done.stderr.count("\n") == 1
    assert secret[3:40] not in done.stdout + done.stderr
    assert secret.encode() not in kept(home)


def test_who_gives_a_command_is_kept_without_a_secret(lockpin, ledger, home):
    done = lockpin("correct", "c2", "--usd", "1", "--reason", "the invoice", LOGNAME=f"x {KEY}")

    assert done.returncode == 0
    assert KEY.encode() not in kept(home)
    assert "x …".encode() in kept(home) or b"x \\u2026" in kept(home)
