# Needs `just`; every recipe is a plain command that also works without it.

# All checks, in the order of scripts/test
check *args:
    scripts/test {{args}}

# Rewrite what the formatter and the linter can
fix:
    .venv-dev/bin/ruff format
    .venv-dev/bin/ruff check --fix

# Lock the newest versions that pyproject.toml allows (needs uv on PATH)
lock:
    #!/bin/sh
    set -eu
    compile() {
        uv pip compile pyproject.toml --python-version 3.12 --universal --generate-hashes --upgrade \
            --no-emit-index-url --no-header --no-annotate --quiet "$@"
    }
    compile -o requirements.lock
    compile --group dev --extra oidc --constraints requirements.lock -o requirements-dev.lock
    uv pip compile tests/clients/aider/requirements.in --python-version 3.12 --universal --generate-hashes --upgrade \
        --no-emit-index-url --no-header --no-annotate --quiet -o tests/clients/aider/requirements.lock
    mark() { printf '%s\n' "$1" | cat - "$2" > "$2.new" && mv "$2.new" "$2"; }
    mark '# Versions and hashes of what Lockpin runs with; CPython 3.12 and newer. Written by `just lock`.' requirements.lock
    mark '# Versions and hashes of what its checks run with; CPython 3.12 and newer. Written by `just lock`.' requirements-dev.lock
    mark '# Versions and hashes of what aider runs with; CPython 3.12. Written by `just lock`.' tests/clients/aider/requirements.lock

# Build the wheel and the source distribution into dist/
build:
    .venv-dev/bin/python -m hatchling build

# Write the price table anew from the installed price data
prices *args:
    .venv-dev/bin/python scripts/generate_prices {{args}}
