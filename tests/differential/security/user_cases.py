"""Differential cases: users and their passwords."""

from collections.abc import Mapping
from typing import Final

from tests.differential.security.secure_run import (
    ALTER_USERS,
    DESCRIBE_USERS,
    PASSWORD,
    SALT,
    SHA_256,
    SHA_512,
    SecureRun,
    new_user,
)
from tests.differential.wire import ConnectionClosedError, Tree

ITERATIONS_WRONG: Final = (-1, 0, 1, 4095, 16_385)


async def altering(run: SecureRun) -> None:
    """AlterUserScramCredentials, valid and invalid."""
    user = run.name("user")

    async def alter(
        name: str, *added: Mapping[str, Tree], removed: tuple[Mapping[str, Tree], ...] = ()
    ) -> None:
        values: Mapping[str, Tree] = {"deletions": list(removed), "upsertions": list(added)}
        await run.ask(f"user/alter, {name}", ALTER_USERS, 0, values)

    await alter("nothing")
    await alter("one", new_user(user))
    await alter("again", new_user(user))
    await alter("another mechanism", new_user(user, SHA_256, 8192))
    await alter("named twice", new_user(user), new_user(user))
    await alter("two mechanisms at once", new_user(user), new_user(user, SHA_256))
    for iterations in ITERATIONS_WRONG:
        wrong = {**new_user(user), "iterations": iterations}
        await alter(f"{iterations} iterations", wrong)
    for mechanism in (0, 3):
        await alter(f"mechanism {mechanism}", {**new_user(user), "mechanism": mechanism})
    await alter("empty name", new_user(""))
    await alter("empty salt", {**new_user(user), "salt": b""})
    await alter("empty password", {**new_user(user), "salted_password": b""})
    await alter("right and wrong", new_user(run.name("right")), new_user(""))
    known: Mapping[str, Tree] = {"name": user, "mechanism": SHA_256}
    await alter("remove one mechanism", removed=(known,))
    await alter("remove it again", removed=(known,))
    await alter("remove with mechanism 0", removed=({"name": user, "mechanism": 0},))
    await alter("remove an unknown user", removed=({"name": run.name("absent"), "mechanism": 2},))
    await alter("remove and add", new_user(user), removed=({"name": user, "mechanism": SHA_512},))
    await alter("remove the empty name", removed=({"name": "", "mechanism": SHA_512},))


async def describing(run: SecureRun) -> None:
    """DescribeUserScramCredentials, of users that exist or not."""
    user, both = run.name("shown"), run.name("shown-both")
    await run.add_users([user])
    values: Mapping[str, Tree] = {"deletions": [], "upsertions": [new_user(both)]}
    await run.quietly(ALTER_USERS, 0, values)
    values = {"deletions": [], "upsertions": [new_user(both, SHA_256, 8192)]}
    await run.quietly(ALTER_USERS, 0, values)
    await run.wait_spread()

    async def show(name: str, *users: str) -> None:
        asked: Mapping[str, Tree] = {"users": [{"name": user} for user in users]}
        await run.ask(f"user/show {name}", DESCRIBE_USERS, 0, asked)

    await show("one", user)
    await show("two", user, both)
    await show("an unknown one", run.name("absent"))
    await show("named twice", user, user)
    await show("the empty name", "")
    answer = await run.quietly(DESCRIBE_USERS, 0, {"users": None})
    run.note_names("user/all", answer, "results", "user")


async def following(run: SecureRun) -> None:
    """Log in after the password was changed, and after the user was removed."""
    user = run.name("changing")
    await run.add_users([user])
    run.answers["user/right password"] = await _is_served(run, user, PASSWORD)
    other = {**new_user(user), "salted_password": bytes(64), "salt": SALT}
    values: Mapping[str, Tree] = {"deletions": [], "upsertions": [other]}
    await run.quietly(ALTER_USERS, 0, values)
    await run.wait_spread()
    run.answers["user/former password"] = await _is_served(run, user, PASSWORD)
    await run.add_users([user])
    run.answers["user/password changed back"] = await _is_served(run, user, PASSWORD)
    gone: Mapping[str, Tree] = {
        "deletions": [{"name": user, "mechanism": SHA_512}],
        "upsertions": [],
    }
    await run.quietly(ALTER_USERS, 0, gone)
    await run.wait_spread()
    run.answers["user/removed"] = await _is_served(run, user, PASSWORD)


async def _is_served(run: SecureRun, user: str, password: str) -> bool:
    """Return whether a client that logs in with this password is served."""
    wire = run.login_wire(user, password)
    try:
        await wire.ask("Metadata", 9, {"topics": []})
    except ConnectionClosedError:
        return False
    finally:
        await wire.aclose()
    return True


CASES: Final = (altering, describing, following)
