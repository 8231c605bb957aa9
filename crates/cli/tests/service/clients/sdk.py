"""A portal's work with the public SDK, unmodified, against the service that the environment points to.

usage: sdk.py SCENE. One line of JSON for each step tells what came back; the test looks at the servers' disks.
"""

import datetime
import json
import os
import sys

import globus_sdk
from globus_sdk import scopes

ID, SECRET = os.environ["GLOBUS_CLI_CLIENT_ID"], os.environ["GLOBUS_CLI_CLIENT_SECRET"]
ALPHA, BETA = os.environ["ALPHA"], os.environ["BETA"]
NOBODY = "00000000-0000-4000-8000-000000000000"


def tell(step, **told):
    print(json.dumps({"step": step, **told}), flush=True)


def refusal(call):
    """What the service says to a call that it is to refuse."""
    try:
        call()
    except globus_sdk.GlobusAPIError as error:
        return [type(error).__name__, error.http_status, error.code]
    return "was not refused"


def app():
    config = globus_sdk.GlobusAppConfig(token_storage="memory")
    return globus_sdk.ClientApp("portal", client_id=ID, client_secret=SECRET, config=config)


def transfers():
    return globus_sdk.TransferClient(app=app())


def finished(client, task):
    """A task's document at its end."""
    if not client.task_wait(task, timeout=90, polling_interval=1):
        raise SystemExit(f"task {task} does not end: {client.get_task(task).text}")
    return client.get_task(task)


def carry_out(client, data):
    submit = client.submit_delete if data["DATA_TYPE"] == "delete" else client.submit_transfer
    return finished(client, submit(data)["task_id"])


def kept(task, *names):
    return {name: task[name] for name in names}


def identity():
    portal = globus_sdk.ConfidentialAppAuthClient(ID, SECRET)
    wanted = [scopes.TransferScopes.all, scopes.AuthScopes.openid, scopes.AuthScopes.profile, scopes.AuthScopes.email]
    tokens = portal.oauth2_client_credentials_tokens(requested_scopes=wanted).by_resource_server
    access = tokens["transfer.api.globus.org"]["access_token"]
    looked_at = portal.oauth2_token_introspect(access)
    tell("introspect", servers=sorted(tokens), active=looked_at["active"], scope=looked_at["scope"], sub=looked_at["sub"])
    of_user = globus_sdk.AccessTokenAuthorizer(tokens["auth.globus.org"]["access_token"])
    info = globus_sdk.AuthClient(authorizer=of_user).userinfo()
    known = portal.get("/v2/api/identities", query_params={"ids": f"{info['sub']},{NOBODY}"})["identities"]
    looking = portal.oauth2_client_credentials_tokens(requested_scopes=scopes.AuthScopes.view_identities)
    looking = globus_sdk.AuthClient(authorizer=globus_sdk.AccessTokenAuthorizer(looking["access_token"]))
    by_token = looking.get_identities(usernames=info["preferred_username"])["identities"]
    tell("who", sub=info["sub"], known=[one["id"] for one in known], by_token=[one["id"] for one in by_token])
    client = globus_sdk.TransferClient(authorizer=globus_sdk.AccessTokenAuthorizer(access))
    before = [task["task_id"] for task in client.task_list()]
    portal.oauth2_revoke_token(access)
    after = portal.oauth2_token_introspect(access)["active"]
    tell("revoke", before=before, active=after, refused=refusal(client.task_list))
    wrong = globus_sdk.ConfidentialAppAuthClient(ID, "ws_guessed")
    tell("wrong", refused=refusal(lambda: wrong.oauth2_client_credentials_tokens(requested_scopes=wanted)))
    tell("unknown", refused=refusal(lambda: wrong.get("/v2/api/identities", query_params={"ids": NOBODY})))


def files():
    client = transfers()
    shown = client.get_endpoint(ALPHA)
    tell("endpoint", **kept(shown, "id", "display_name", "entity_type", "DATA_TYPE"))
    for number in range(101):
        wish = {"DATA_TYPE": "shared_endpoint", "host_endpoint": ALPHA, "host_path": "/dir/", "display_name": f"many {number:03}"}
        client.create_shared_endpoint(wish)
    pages = [len(page["DATA"]) for page in client.paginated.endpoint_search("many")]
    found = {one["display_name"] for one in client.paginated.endpoint_search("many").items()}
    mine = client.endpoint_search(filter_scope="my-endpoints", limit=7, offset=3)
    tell("search", pages=pages, found=len(found), one_page=[mine["limit"], mine["offset"], len(mine["DATA"]), mine["has_next_page"]])
    guests = [one["id"] for page in client.paginated.get_shared_endpoint_list(ALPHA, max_results=40) for one in page["shared_endpoints"]]
    tell("guests", count=len(guests), different=len(set(guests)))

    listed = client.operation_ls(ALPHA, path="/dir", orderby=["type", "name DESC"], show_hidden=False)
    tell("ls", path=listed["path"], names=[entry["name"] for entry in listed])
    chosen = client.operation_ls(ALPHA, path="/dir", filter={"name": ["~*.txt", "!b.txt"], "type": "file"})
    either = client.operation_ls(ALPHA, path="/dir", filter=["name:=b.txt", {"type": "dir"}])
    page = client.operation_ls(ALPHA, path="/dir", orderby="name", limit=2, offset=1, show_hidden=False)
    names = [[entry["name"] for entry in answer] for answer in (chosen, either, page)]
    tell("chosen", names=names, total=page["total"])
    entry = client.operation_stat(ALPHA, "/dir/a.txt")
    tell("stat", **kept(entry, "name", "type", "size", "permissions"))
    made = client.operation_mkdir(ALPHA, "/dir/new")["code"]
    renamed = client.operation_rename(ALPHA, "/dir/b.txt", "/dir/new/c.txt")["code"]
    tell("changed", codes=[made, renamed])
    tell("refused", answers=[refusal(call) for call in (
        lambda: client.operation_ls(ALPHA, path="/nowhere"),
        lambda: client.operation_stat(ALPHA, "/nowhere"),
        lambda: client.operation_mkdir(ALPHA, "/dir/new"),
        lambda: client.operation_mkdir(ALPHA, "/no/where"),
        lambda: client.operation_rename(ALPHA, "/dir/a.txt", "/dir/new/c.txt"),
        lambda: client.get_endpoint(NOBODY),
        lambda: client.get_task(NOBODY),
        lambda: client.get_bookmark(NOBODY),
        lambda: client.submit_transfer(globus_sdk.TransferData(ALPHA, BETA)),
        lambda: client.operation_ls(client.get_endpoint(ALPHA)["owner_id"], path="/"),
    )])
    stranger = globus_sdk.TransferClient(authorizer=globus_sdk.AccessTokenAuthorizer("wa_guessed"))
    tell("stranger", refused=refusal(lambda: stranger.get_endpoint(ALPHA)))


def copies():
    client = transfers()
    data = globus_sdk.TransferData(ALPHA, BETA, label="a portal's", verify_checksum=True, preserve_timestamp=True, encrypt_data=True,
                                   deadline=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1))
    data["submission_id"] = client.get_submission_id()["value"]
    data.add_item("/one", "/in/one", external_checksum="5d41402abc4b2a76b9719d911017c592")
    data.add_item("/tree", "/in/tree", recursive=True)
    for name, method, kind in (("keep.tmp", "include", "file"), ("*.tmp", "exclude", "file"), ("skip", "exclude", "dir")):
        data.add_filter_rule(name, method=method, type=kind)
    first, again = client.submit_transfer(data), client.submit_transfer(data)
    tell("submitted", codes=[first["code"], again["code"]], same=first["task_id"] == again["task_id"])
    task = finished(client, first["task_id"])
    tell("copied", **kept(task, "status", "label", "files", "directories", "bytes_transferred", "encrypt_data",
                           "preserve_timestamp", "filter_rules", "faults"))
    copied = list(client.paginated.task_successful_transfers(task["task_id"]).items())
    tell("successful", paths=sorted([one["source_path"], one["destination_path"], one["size"]] for one in copied),
         checksums=sorted({one["checksum_algorithm"] or "" for one in copied}))
    events = [event["code"] for event in client.paginated.task_event_list(task["task_id"], query_params={"filter": "is_error:0"}).items()]
    tell("events", codes=events)

    for level in ("exists", "size", "mtime", "checksum"):
        data = globus_sdk.TransferData(ALPHA, BETA, sync_level=level)
        data.add_item("/same", "/same", recursive=True)
        task = carry_out(client, data)
        tell(f"synced {level}", **kept(task, "status", "sync_level", "files_skipped", "files_transferred"))
    data = globus_sdk.TransferData(ALPHA, BETA, delete_destination_extra=True, sync_level=3)
    data.add_item("/same", "/same", recursive=True)
    tell("mirrored", **kept(carry_out(client, data), "status", "delete_destination_extra"))

    data = globus_sdk.TransferData(ALPHA, BETA, skip_source_errors=True)
    data.add_item("/one", "/second")
    data.add_item("/missing", "/missing")
    task = carry_out(client, data)
    skipped = [[one["source_path"], one["error_code"]] for one in client.paginated.task_skipped_errors(task["task_id"]).items()]
    tell("skipped", **kept(task, "status", "subtasks_skipped_errors"), errors=skipped)
    data = globus_sdk.TransferData(ALPHA, BETA)
    data.add_item("/one", "/third", external_checksum="0" * 64, checksum_algorithm="sha256")
    task = carry_out(client, data)
    tell("mismatch", status=task["status"], code=task["fatal_error"]["code"])
    data = globus_sdk.TransferData(ALPHA, BETA, additional_fields={"recursive_symlinks": "keep"})
    data.add_item("/links", "/links", recursive=True)
    tell("links", **kept(carry_out(client, data), "status", "symlinks", "recursive_symlinks"))

    data = globus_sdk.DeleteData(BETA, recursive=True, interpret_globs=True, label="gone")
    data.add_item("/old*")
    data.add_item("/waste")
    tell("deleted", **kept(carry_out(client, data), "status", "type", "label", "destination_endpoint_id"))
    data = globus_sdk.DeleteData(BETA, ignore_missing=True)
    data.add_item("/never")
    tell("ignored", status=carry_out(client, data)["status"])
    data = globus_sdk.DeleteData(BETA)
    data.add_item("/never")
    tell("missing", code=carry_out(client, data)["fatal_error"]["code"])


def tasks():
    """Beta is paused first, so that tasks wait."""
    client = transfers()
    wish = {"DATA_TYPE": "pause_rule", "endpoint_id": BETA, "message": "New disks", "pause_task_transfer_write": True}
    rule = client.endpoint_manager_create_pause_rule(wish)["id"]
    data = globus_sdk.TransferData(ALPHA, BETA, label="first", notify_on_failed=False)
    data.add_item("/one", "/one")
    task = client.submit_transfer(data)["task_id"]
    tell("waits", ended=client.task_wait(task, timeout=1, polling_interval=1), paused=client.get_task(task)["is_paused"],
         why=[one["message"] for one in client.task_pause_info(task)["pause_rules"]],
         rules=[one["id"] == rule for one in client.endpoint_manager_pause_rule_list(filter_endpoint=BETA)],
         effective=[one["message"] for one in client.my_effective_pause_rule_list(BETA)])
    tell("conflict", refused=refusal(lambda: client.submit_transfer(globus_sdk.TransferData(**{
        "source_endpoint": ALPHA, "destination_endpoint": BETA, "additional_fields": {"DATA": data["DATA"]}}))))
    later = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(days=30)
    client.update_task(task, {"label": "second", "deadline": later.isoformat()})
    updated = client.get_task(task)
    tell("updated", label=updated["label"], is_later=updated["deadline"] == later.isoformat())
    watched = [one["id"] for one in client.endpoint_manager_monitored_endpoints()]
    managed = client.endpoint_manager_get_endpoint(BETA)["id"]
    tell("manager", watched=[ALPHA in watched, BETA in watched], managed=managed == BETA,
         message=client.endpoint_manager_get_pause_rule(rule)["message"])
    other = globus_sdk.TransferData(ALPHA, BETA, label="cancelled")
    other.add_item("/one", "/other")
    other = client.submit_transfer(other)["task_id"]
    code = client.cancel_task(other)["code"]
    ended = finished(client, other)
    tell("cancelled", code=code, again=client.cancel_task(other)["code"], status=ended["status"], fatal=ended["fatal_error"]["code"],
         late=refusal(lambda: client.update_task(other, {"label": "late"})))
    client.endpoint_manager_update_pause_rule(rule, {"message": "Newer disks"})
    tell("pause", why=[one["message"] for one in client.task_pause_info(task)["pause_rules"]])
    client.endpoint_manager_delete_pause_rule(rule)
    tell("resumed", status=finished(client, task)["status"])

    for number in range(5):
        data = globus_sdk.DeleteData(ALPHA, ignore_missing=True, label=f"number {number}")
        data.add_item(f"/never-{number}")
        carry_out(client, data)
    every = [one["label"] for one in client.paginated.task_list(filter={"type": "DELETE"}, orderby="request_time ASC").items()]
    page = client.task_list(limit=2, offset=3, filter="type:DELETE", orderby=["request_time ASC"])
    failed = [one["task_id"] == other for one in client.task_list(filter={"status": ["FAILED", "INACTIVE"]})]
    named = [one["label"] for one in client.task_list(filter={"label": "~number*"}, orderby="label DESC", limit=2)]
    tell("listed", every=every, page=[one["label"] for one in page], total=page["total"], failed=failed, named=named,
         little=sorted(client.task_list(limit=1, query_params={"fields": "task_id,status"})["DATA"][0]))


def sharing():
    client, other = transfers(), os.environ["OTHER"]
    mark = client.create_bookmark({"DATA_TYPE": "bookmark", "name": "mark", "endpoint_id": ALPHA, "path": "/team/"})["id"]
    client.update_bookmark(mark, {"name": "marked"})
    tell("bookmark", **kept(client.get_bookmark(mark), "name", "path", "endpoint_id"), listed=[one["name"] for one in client.bookmark_list()],
         deleted=client.delete_bookmark(mark)["code"], left=len(list(client.bookmark_list())), gone=refusal(lambda: client.get_bookmark(mark)))

    wish = {"DATA_TYPE": "shared_endpoint", "host_endpoint": ALPHA, "host_path": "/team/", "display_name": "the team's"}
    guest = client.create_shared_endpoint(wish)["id"]
    client.update_endpoint(guest, {"DATA_TYPE": "endpoint", "description": "of a portal"})
    tell("guest", id=guest, description=client.get_endpoint(guest)["description"])
    wish = {"DATA_TYPE": "access", "principal_type": "identity", "principal": other, "path": "/in/", "permissions": "r"}
    rule = client.add_endpoint_acl_rule(guest, wish)["access_id"]
    client.update_endpoint_acl_rule(guest, rule, {"permissions": "rw"})
    shown = client.get_endpoint_acl_rule(guest, rule)
    rules = [[one["principal"] == other, one["path"], one["permissions"]] for one in client.endpoint_acl_list(guest) if one["id"] == rule]
    tell("rule", **kept(shown, "path", "permissions"), rules=rules, twice=refusal(lambda: client.add_endpoint_acl_rule(guest, wish)))
    theirs = globus_sdk.ClientApp("other", client_id=other, client_secret=os.environ["OTHER_SECRET"],
                                  config=globus_sdk.GlobusAppConfig(token_storage="memory"))
    them = globus_sdk.TransferClient(app=theirs)
    them.operation_mkdir(guest, "/in/theirs")
    tell("theirs", names=[one["name"] for one in them.operation_ls(guest, path="/in/")],
         outside=refusal(lambda: them.operation_ls(guest, path="/")), rights=refusal(lambda: them.endpoint_acl_list(guest)))
    client.delete_endpoint_acl_rule(guest, rule)
    tell("taken back", refused=refusal(lambda: them.operation_ls(guest, path="/in/")))

    role = client.add_endpoint_role(guest, {"DATA_TYPE": "role", "principal_type": "identity", "principal": other, "role": "access_manager"})["id"]
    shown = [client.get_endpoint_role(guest, role)["role"]] + [one["role"] for one in client.endpoint_role_list(guest) if one["id"] == role]
    managed = len(list(them.endpoint_acl_list(guest))) >= 0
    client.delete_endpoint_role(guest, role)
    tell("role", shown=shown, managed=managed, after=refusal(lambda: them.endpoint_acl_list(guest)))

    managing = globus_sdk.GroupsClient(app=app(), app_scopes=[scopes.GroupsScopes.all])
    groups = globus_sdk.GroupsManager(managing)
    group = groups.create_group("crew", "the portal's people")["id"]
    groups.add_member(group, other)
    client.add_endpoint_acl_rule(guest, {**wish, "principal_type": "group", "principal": group, "path": "/"})
    theirs_of = [one["name"] for one in globus_sdk.GroupsClient(app=theirs).get_my_groups()]
    seen = [one["name"] for one in them.operation_ls(guest, path="/")]
    groups.remove_member(group, other)
    tell("group", theirs=theirs_of, seen=seen, after=refusal(lambda: them.operation_ls(guest, path="/")))
    managing.delete_group(group)
    code = client.delete_endpoint(guest)["code"]
    tell("deleted", code=code, left=len(list(client.my_shared_endpoint_list(ALPHA))), gone=refusal(lambda: client.get_endpoint(guest)))


def timers():
    client, timed = transfers(), globus_sdk.TimersClient(app=app())
    data = globus_sdk.TransferData(ALPHA, BETA, sync_level="mtime")
    data.add_item("/box", "/box", recursive=True)
    now = timed.create_timer(globus_sdk.TransferTimer(name="now", schedule=globus_sdk.OnceTimerSchedule(), body=data))["timer"]
    tell("made", **kept(now, "name", "timer_type", "status"))
    later = globus_sdk.RecurringTimerSchedule(3600, start=datetime.datetime(2099, 1, 1, tzinfo=datetime.timezone.utc),
                                              end={"condition": "iterations", "count": 3})
    later = timed.create_timer(globus_sdk.TransferTimer(name="later", schedule=later, body=data))["timer"]["job_id"]
    timed.pause_job(later)
    paused = timed.get_job(later)["inactive_reason"]["cause"]
    timed.resume_job(later)
    timed.update_job(later, {"name": "much later"})
    shown = timed.get_job(later)
    tell("later", paused=paused, **kept(shown, "name", "status", "interval"), listed=sorted(one["name"] for one in timed.list_jobs()["jobs"]))
    timed.delete_job(later)
    tell("gone", refused=refusal(lambda: timed.get_job(later)))
    run = None
    while run is None:
        run = next((one for one in client.task_list() if (one["label"] or "").startswith("now")), None)
    tell("ran", status=finished(client, run["task_id"])["status"], label=run["label"])


if __name__ == "__main__":
    {"identity": identity, "files": files, "copies": copies, "tasks": tasks, "sharing": sharing, "timers": timers}[sys.argv[1]]()
