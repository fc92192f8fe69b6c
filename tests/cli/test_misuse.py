import pytest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("calls --limit abc", "--limit: a whole number is allowed; see `lockpin calls --help`"),
        ("calls --limit 0", "--limit: at least 1 is allowed; see `lockpin calls --help`"),
        ("run --port 65536 x", "--port: at most 65,535 is allowed; see `lockpin run --help`"),
        ("rprot", 'there is no command "rprot"; did you mean report?; see `lockpin --help`'),
        ("explain", 'there is no command "explain"; did you mean prices explain?; see `lockpin --help`'),
        ("zzzzzz", 'there is no command "zzzzzz"; see `lockpin --help`'),
        ("budget sett", 'there is no command "sett"; did you mean set, reset, status?; see `lockpin budget --help`'),
        (
            "report --format xml",
            '--format: "xml" is not allowed; table, json, csv, jsonl are; see `lockpin report --help`',
        ),
        ("report more", '"more" is more than is allowed; see `lockpin report --help`'),
        ("budget raise", "NAME is missing; see `lockpin budget raise --help`"),
        ("task new x", "--budget is missing; see `lockpin task new --help`"),
        ("calls --nope", "there is no flag --nope; did you mean --model, --since?; see `lockpin calls --help`"),
        (
            "calls --user ann",
            (
                "there is no flag --user; --key user:NAME is for one alone where there is --key, --by user adds up in "
                "`report`; see `lockpin calls --help`"
            ),
        ),
        (
            "budget set x --scope org --action warn",
            (
                "there is no flag --action; a budget by command always enforces, one that warns is under budgets: in "
                "the file; see `lockpin budget set --help`"
            ),
        ),
        (
            "budget set x --scope org --teams web",
            (
                "--teams: there is no filter by team; --scope team gives each team an account of one size, and for sizes of "
                "their own give a team's keys a group or a tag (`lockpin key create --group web`) and name that by --groups "
                "or --tags; see `lockpin budget set --help`"
            ),
        ),
    ],
)
def test_wrong_use_is_told_in_our_words(lockpin, words, told):
    done = lockpin(*words.split())

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"lockpin: {told}\n")
