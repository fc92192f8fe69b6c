def test_sound_file_is_ok(lockpin, home):
    file = home.config("daily_usd: 10\n")

    done = lockpin("validate", str(file))

    assert (done.returncode, done.stdout) == (0, f"{file}: ok, no warnings\n")


def test_warnings_are_listed_and_are_no_error(lockpin, home):
    home.config("budgets:\n- {name: soft, scope: machine, window: day, limit_usd: 2}\n")

    done = lockpin("validate")

    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == 'warning: budget "soft" only warns and never blocks; action: enforce blocks'
    assert done.stdout.endswith("lockpin.yaml: ok, 1 warning\n")


def test_hosts_of_no_provider_and_half_a_price_are_warnings(lockpin, home):
    home.config(
        "pricing: {m: {input_per_mtok: 1}}\n"
        "upstreams: {api.opena.com: 'http://127.0.0.1:9'}\n"
        "allow_uncapped: [api.opena.com/v1/videos*]\n"
    )

    done = lockpin("validate")

    assert [line.split(":")[1] for line in done.stdout.splitlines()[:3]] == [
        " pricing",
        " allow_uncapped",
        " upstreams",
    ]
    assert (done.returncode, done.stdout.splitlines()[3]) == (0, "lockpin.yaml: ok, 3 warnings")


def test_error_names_file_and_line(lockpin, home):
    file = home.config("mode: solo\n\nbudgets:\n- {name: a, scope: machine, window: day, limit_usd: nan}\n")

    done = lockpin("validate", str(file))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"{file}:4: budgets[0].limit_usd" in done.stderr


def test_bad_price_is_an_error(lockpin, home):
    home.config("pricing:\n  m: {input_per_mtok: -1}\n")

    done = lockpin("validate")

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "-1" in done.stderr


def test_without_a_file_the_defaults_hold(lockpin):
    assert lockpin("validate").stdout == "no configuration file, so the defaults hold: ok, no warnings\n"


def test_an_included_file_is_checked_too_and_named(lockpin, home):
    gateway = home.config("pricing: {m: {inputPerMTok: 1}}\nbudgets: []\n", "gateway.yaml")
    home.config("include: [gateway.yaml]\n")

    half = lockpin("validate")
    gateway.write_text("budgets:\n- {name: a, scope: user, window: day, limitUSD: 5, action: enforce}\n")
    solo = lockpin("validate")
    gateway.write_text("budgets:\n- {name: a, scope: user, window: day, limitUSD: lots}\n")
    wrong = lockpin("validate")
    gateway.unlink()
    gone = lockpin("validate")

    assert 'warning: pricing: "m" has no output price, so calls to it are refused' in half.stdout
    assert 'warning: budget "a" can never match: in solo mode no call has a user; mode: team' in solo.stdout
    assert (wrong.returncode, wrong.stderr) == (
        1,
        'lockpin: gateway.yaml:2: budgets[0].limitUSD is "lots"; a positive amount is allowed\n',
    )
    assert (gone.returncode, gone.stdout) == (1, "")
    assert gone.stderr.startswith("lockpin.yaml:1: include[0] names a file that cannot be taken: gateway.yaml")


def test_many_budgets_that_only_warn_are_one_line(lockpin, home):
    budgets = "\n".join(f"- {{name: {name}, scope: machine, window: {name}, limit_usd: 2}}" for name in ("day", "week"))
    home.config(f"budgets:\n{budgets}\n")

    done = lockpin("validate")

    assert done.stdout.splitlines()[0] == (
        'warning: budgets "day", "week" only warn and never block; action: enforce blocks'
    )


def test_a_budget_that_a_command_has_made_too_is_an_error_as_it_is_for_the_proxy(lockpin, home, ledger):
    lockpin("budget", "set", "everyone", "--scope", "machine", "--window", "day", "--limit-usd", "3")
    file = home.config("budgets:\n- {name: everyone, scope: machine, window: day, limit_usd: 2}\n")

    done = lockpin("validate")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f'{file.name}:2: budgets[0]: budget "everyone" was made by command too, so no proxy starts; give it '
        "another name, or take the command's away: lockpin budget rm everyone\n"
    )


def test_a_variable_of_a_providers_key_that_is_not_set_is_said(lockpin, home):
    home.config("mode: team\ndaily_usd: 5\nkeys: {provider_env: {openai: OPENAI_API_KEY}}\n")

    there = lockpin("validate", OPENAI_API_KEY="sk-1")
    missing = lockpin("validate")

    assert there.stdout == "lockpin.yaml: ok, no warnings\n"
    assert missing.stdout.splitlines()[0] == (
        "warning: keys.provider_env: OPENAI_API_KEY is not set here; where it is not set as the proxy starts, base-URL "
        "calls to openai are refused, unless the keyring has its key"
    )
