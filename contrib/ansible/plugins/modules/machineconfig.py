#!/usr/bin/python
"""Ansible module that applies a MachineConfig with pivot."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: machineconfig
short_description: Apply a MachineConfig to an image-based host
version_added: 0.1.0
description:
  - Makes a host what a MachineConfig requests, with C(pivot apply) - OS image, kernel arguments, files, units,
    packages, SSH keys and password of core.
  - If no change needs a reboot by the host's rules, the running system is changed and services are notified.
    Otherwise the change is committed to the next boot, and RV(reboot_required) is true. The module never reboots,
    as that would end Ansible's connection; use M(ansible.builtin.reboot).
options:
  content:
    description:
      - The MachineConfig, as text in YAML or JSON, or as a dictionary. It is passed to pivot on its standard input, not in
        a file. As a dictionary, its values are hidden in the output of the task, too.
      - Exactly one of O(content), O(path) and O(repair) is required.
    type: raw
  path:
    description: File on the host with the MachineConfig.
    type: path
  repair:
    description: Correct drift from the host's current MachineConfig, and apply no other.
    type: bool
    default: false
  reboot:
    description:
      - V(later) commits changes that need a reboot. V(never) fails on them, before anything is changed.
    type: str
    choices: [later, never]
    default: later
  unsupported:
    description:
      - What to do about differences that only an installation can change. V(stop) fails with
        RV(unreconcilable); V(warn) applies the rest, and lists them in RV(left_out).
    type: str
    choices: [stop, warn]
    default: stop
  executable:
    description: The program pivot.
    type: path
    default: pivot
  root:
    description: Root directory of the host.
    type: path
    default: /
attributes:
  check_mode:
    support: full
    details: Until a committed change is booted, check mode reports it again, because it compares with the running system.
  diff_mode:
    support: full
    details: Contents of files are not shown.
author:
  - The pivot project
"""

EXAMPLES = r"""
- name: Apply the MachineConfig of this host
  machine_pivot.pivot.machineconfig:
    content: "{{ lookup('file', 'worker.yaml') }}"
  register: pivot

- name: Reboot into the new system, if there is one
  ansible.builtin.reboot:
  when: pivot.reboot_required

- name: Correct drift, but never reboot for it
  machine_pivot.pivot.machineconfig:
    repair: true
    reboot: never
"""

RETURN = r"""
outcome:
  description: How the run ended - unchanged, live (the running system has changed), committed (the next boot has changed).
    In check mode the outcome that is expected.
  returned: success
  type: str
  sample: committed
reboot_required:
  description: The next boot starts another system than the running one.
  returned: success
  type: bool
actions:
  description: What was done to services, as type and service. In check mode what would be done.
  returned: success
  type: list
  elements: dict
  sample: [{"type": "Reload", "service": "crio.service"}]
drain:
  description: Whether a cluster drains the node for this change (wanted), and why (because).
  returned: success
  type: dict
machineconfig:
  description: Name of the MachineConfig that was applied, and digest of the host's record of it.
  returned: success, except in check mode
  type: dict
left_out:
  description: Parts of the MachineConfig that were not applied, as only an installation can.
  returned: success, except in check mode
  type: list
  elements: str
error:
  description: Why it failed, with class, message, hint, permanent and exitStatus.
  returned: failure
  type: dict
unreconcilable:
  description: What only an installation can change, each with field, old and new value, without secrets.
  returned: if O(unsupported) is V(stop) and there is any
  type: list
  elements: dict
"""

import json

from ansible.module_utils.basic import AnsibleModule


class Pivot(object):
    """Runs pivot with the parameters of a task."""

    def __init__(self, module):
        self.module = module
        params = module.params
        self.content = params["content"]
        if isinstance(self.content, (dict, list)):
            self.content = json.dumps(self.content)
        self.command = [
            params["executable"], "apply", "--root=" + params["root"], "-o", "json",
            "--reboot=" + params["reboot"], "--unsupported=" + params["unsupported"],
        ]
        if params["repair"]:
            self.command.append("--repair")
        else:
            # A path is a path, also if it begins with "-".
            path = "./-" if params["path"] == "-" else params["path"]
            self.command += ["--", "-" if params["content"] is not None else path]

    def run(self, *flags):
        """Returns the one document that pivot writes. Ends the task if pivot fails."""
        status, out, log = self.module.run_command(
            self.command[:2] + list(flags) + self.command[2:], data=self.content)
        try:
            document = json.loads(out)
        except ValueError:
            self.module.fail_json(msg="pivot ended with status %d and wrote no document: %s" % (status, log.strip()), rc=status)
        if "error" in document:
            self.fail(document, status)
        if status != 0:
            self.module.fail_json(msg="pivot ended with status %d: %s" % (status, log.strip()), rc=status)
        self.warn(document)
        return document

    def warn(self, document):
        """Shows the warnings among the notes of a document."""
        for note in document.get("notes", []):
            if note.startswith("warning: "):
                self.module.warn(note[len("warning: "):])

    def fail(self, document, status):
        """Ends the task with the error of a document."""
        self.warn(document)
        error = document["error"]
        problems = error.get("problems", [])
        result = {
            "msg": ". ".join(part for part in (error["message"], error["hint"]) if part),
            "rc": status, "error": error,
        }
        changes = [problem["change"] for problem in problems if "change" in problem]
        if changes:
            result["unreconcilable"] = changes
        self.module.fail_json(**result)


def diff_of(plan):
    """Returns the text for diff mode: what a plan changes, without contents."""
    lines = []
    image = plan["image"]
    if image["changed"]:
        lines += ["- image %s" % image["from"], "+ image %s" % image["to"]]
    lines += ["- kernel argument %s" % arg for arg in plan["kargs"].get("deleted") or []]
    lines += ["+ kernel argument %s" % arg for arg in plan["kargs"].get("appended") or []]
    signs = {"create": "+", "install": "+", "remove": "-", "uninstall": "-"}
    for change in plan["files"]:
        lines.append("%s %s (%s)" % (signs.get(change["action"], "~"), change["path"], change["action"]))
    for unit in plan["units"]:
        lines.append("~ unit %s (%s)" % (unit["name"], unit.get("state", "unmask")))
    for package in plan["packages"]:
        lines.append("%s package %s (%s)" % (signs.get(package["action"], "~"), package["name"], package["action"]))
    return {"prepared": "".join(line + "\n" for line in lines)}


def expected(plan):
    """Returns the result of a task in check mode."""
    outcome = "unchanged"
    if plan["changed"]:
        outcome = "committed" if plan["reboots"] else "live"
    return {
        "changed": plan["changed"], "outcome": outcome, "reboot_required": plan["reboots"] > 0,
        "actions": plan.get("actions", []), "drain": plan.get("drain", {}),
    }


def done(document):
    """Returns the result of a task that has changed the host, if it had to."""
    return {
        "changed": document["changed"], "outcome": document["outcome"], "reboot_required": document["rebootPending"],
        "actions": document["actions"], "drain": document["drain"],
        "machineconfig": document.get("machineConfig", {}), "left_out": document.get("leftOut", []),
    }


def secrets_of(value, member=""):
    """Returns the texts in a MachineConfig that no log may show: contents, keys and hashes. Ansible would take each
    word and number of an option that is not logged for one, and mask it in all results. So it would a short text, as of
    the header "Connection: close": what has fewer than six characters is no secret."""
    if isinstance(value, dict):
        return set().union(*[secrets_of(inner, name) for name, inner in value.items()])
    if isinstance(value, list):
        return set().union(*[secrets_of(inner, member) for inner in value])
    named = member in ("source", "contents", "config", "sshAuthorizedKeys", "passwordHash", "hash", "value", "httpProxy", "httpsProxy")
    return {str(value)} if named and len(str(value)) > 5 else set()


def main():
    """Runs the module."""
    module = AnsibleModule(
        argument_spec={
            "content": {"type": "raw", "no_log": True},
            "path": {"type": "path"},
            "repair": {"type": "bool", "default": False},
            "reboot": {"type": "str", "choices": ["later", "never"], "default": "later"},
            "unsupported": {"type": "str", "choices": ["stop", "warn"], "default": "stop"},
            "executable": {"type": "path", "default": "pivot"},
            "root": {"type": "path", "default": "/"},
        },
        mutually_exclusive=[["content", "path"]],
        supports_check_mode=True,
    )
    content = module.params["content"]
    if isinstance(content, (dict, list)):
        module.no_log_values = secrets_of(content)
    given = [name for name in ("content", "path") if module.params[name] is not None]
    if len(given) + bool(module.params["repair"]) != 1:
        module.fail_json(msg="exactly one of content, path and repair is required")
    if content == "":  # Ansible would give pivot no standard input of its own
        module.fail_json(msg="content is empty")
    pivot = Pivot(module)
    result = {}
    if module.check_mode or module._diff:
        plan = pivot.run("--dry-run")
        if module._diff:
            result["diff"] = diff_of(plan)
        if module.check_mode:
            if plan["reboots"] and module.params["reboot"] == "never":
                module.fail_json(msg="cannot apply the MachineConfig without a reboot", plan=plan)
            result.update(expected(plan))
            module.exit_json(**result)
    document = pivot.run()
    result.update(done(document))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
