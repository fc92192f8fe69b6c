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
