"""What a person can do about each code. That a code exists, and none is missing, comes from the code."""

from __future__ import annotations

from typing import NamedTuple


class Told(NamedTuple):
    """A problem: the status it comes with, when it comes, and what mends it."""

    status: int
    text: str


PROBLEMS: dict[str, Told] = {
    "bad_answer": Told(
        0,
        "memoryctl could not read what the daemon answered; it is no code of the wire. `memoryctl"
        " restart` brings both to one version.",
    ),
    "bad_body": Told(
        400, "The body is no message of the route's type; the sentence names the field."
    ),
    "bad_query": Told(400, "The query is no message of the route's type, or has over 32 fields."),
    "bad_request": Told(400, "What came is no HTTP/1.1."),
    "body_too_long": Told(413, "The body is longer than 4 MiB."),
    "excluded": Told(
        409,
        "The directory is excluded by `exclude` of the config, or by `off` in the table of its path:"
        " `off`, `on` and `pause` change nothing there, and nothing is stored. `memoryctl config show`"
        " has both.",
    ),
    "head_too_long": Told(431, "Request line and headers are longer than 16 KiB."),
    "internal": Told(
        500,
        "A fault of memoryd. Type and place of it stand in the log: `memoryctl logs`. Nothing of"
        " a request's own text is in there, so the lines can be shown to others.",
    ),
    "no_project": Told(
        400,
        "A command needs a project: type it in the project's directory, or give `--project NAME`.",
    ),
    "nothing_runs": Told(409, "`cancel` found no save that runs."),
    "other_generation": Told(
        404,
        "The other side speaks another generation of the protocol. The sentence says which one to"
        " update: `memoryctl restart` for an older daemon, `memoryctl plugin-dir` for an older"
        " plugin.",
    ),
    "too_slow": Told(408, "A request was not complete within 10 seconds."),
    "unknown_project": Told(
        404,
        "No project of that name is known. The sentence lists those that are; so does `memoryctl`.",
    ),
    "unknown_route": Told(404, "There is no such route. The sentence names those that are near."),
    "unknown_run": Told(
        404,
        "No run has that id, or several begin with it, or there is none yet. `memoryctl log"
        " --json` has the ids.",
    ),
    "unknown_session": Told(
        404, "The daemon has had no event of that session. Inside of it, `--session` needs no id."
    ),
    "wrong_method": Told(405, "The route takes the other of `GET` and `POST`."),
}

WARNINGS: dict[str, str] = {
    "config_late": (
        "The config file names another `memory_root`. A daemon holds the lock on the one that it"
        " started with; all other changes hold already."
    ),
    "config_wrong": (
        "The config file was changed and has a fault, so the settings from before hold."
        " `memoryctl config check` names the line."
    ),
    "credentials": (
        "Turns that wait for a login, a key or the network could not be looked at. The sentence says"
        " why, for instance that the disk is full."
    ),
    "events_lost": (
        "The ledger could not be written for so long that its events filled the room in memory that"
        " there is for them. Turns of which the hook could not leave an event in the spool either are"
        " lost. The warning stays until a restart."
    ),
    "ledger_full": (
        "The ledger can't be written, mostly because the disk is full, and neither may the hooks have"
        " been able to leave their events in the spool: the daemon keeps them in memory. Make room and"
        " don't stop the daemon before: the next event puts them into the ledger, or the next minute, or"
        " `memoryctl save`."
    ),
    "ledger_damaged": (
        "The ledger was damaged. It lies beside the new one under a name with a time stamp; what"
        " was owed in it is not saved any more. Memory files were not touched."
    ),
    "lock_lost": (
        "The state directory or the memory root was deleted or replaced while the daemon ran, and"
        " its lock could not be taken again. Where another daemon holds it, stop one of the two."
    ),
    "no_locks": (
        "The file system of that directory can't lock it, as on some network drives. One daemon"
        " for each machine is still seen to, but two machines with this directory keep apart"
        " journals: run memoryd on one of them."
    ),
    "retention": (
        "Old records could not be deleted. The sentence says why. Nothing is lost by it but room"
        " on the disk."
    ),
    "socket_lost": (
        "The socket's file was deleted, and could not be made again. The sentence says what is in"
        " its place; `memoryctl restart` once that is gone."
    ),
    "spool_stuck": (
        "Events that hooks left while no daemon ran can't be taken: their folder is open to others"
        " or can't be changed, or the ledger can't be written. They stay there until it can. The hint is"
        " the command that mends it."
    ),
}

FAILURES: dict[str, str] = {
    "transient": (
        "Overloaded, a limit, an error of the server, a time-out, no network. Tried again with"
        " growing waits, never before the time that the server asked for, for `retry_for`; then"
        " the turn waits for the session's next turn, until the network is back, or until any save"
        " gets through. Whether it is back is looked at once a minute: a connection is made to where"
        " requests go, and nothing is sent."
    ),
    "credentials": (
        "The key or the login was refused, or something with the account. Nothing is sent with it"
        " until the config, the key or the login changes, or somebody types `memoryctl save` or"
        " `memoryctl resume`."
    ),
    "too_long": (
        "The request was too long. It is sent once more at half the length at most, without the"
        " session; what fails then waits for the session's next turn."
    ),
    "rejected": "Any other refusal by the API, or a program that did not start. Waits for the next turn.",
    "nothing": "The conversation holds nothing yet. Waits for the next turn.",
    "empty": "An answer without a text, or an attempt to use a tool. Waits for the next turn.",
    "cut": (
        "The answer reached its length limit before its reply was complete. What came is kept in"
        " `memory-save.failed-reply.txt`. Waits for the next turn."
    ),
    "refused": "The model declined. Waits for the next turn.",
}
