"""Faults of what programs import: sends under way together, pulls that are cancelled, modules named like rooms."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ORDERED = "tests/unit/pyddmq/test_client_ordered_sends.py"
FACE = "tests/unit/pyddmq/test_face.py"

MUTANTS = (
    Mutant(
        name="a number is given again while a late attempt under a higher one may arrive",
        file="pyddmq/client/ordered_sends.py",
        old="            self._torn = send.numbers\n",
        new="            pass\n",
        caught_by=(f"{ORDERED}::test_every_outcome_is_true_and_order_holds_whatever_happens",),
    ),
    Mutant(
        name="messages under two names are under way together",
        file="pyddmq/client/ordered_sends.py",
        old="            if send.numbers is not None and self._name_out not in (None, send.numbers):\n",
        new="            if False:\n",
        caught_by=(f"{ORDERED}::test_every_outcome_is_true_and_order_holds_whatever_happens",),
    ),
    Mutant(
        name="a refused message burns a name of its producer",
        file="pyddmq/client/ordered_sends.py",
        old="            if self._is_held or self._has_any_before(send):\n",
        new="            if self._has_any_before(send):\n",
        caught_by=(f"{ORDERED}::test_refused_message_costs_no_other_one_its_place",),
    ),
    Mutant(
        name="a pull ends with the task that waits for it",
        file="pyddmq/client/aio/async_consumer.py",
        old="            return await asyncio.shield(pulling)\n",
        new="            return await pulling\n",
        caught_by=(
            "tests/unit/pyddmq/test_client_async.py::test_pull_that_was_cancelled_goes_on_and_the_next_one_gets_its_messages",
        ),
    ),
    Mutant(
        name="rooms are looked for behind a program's own modules",
        file="pyddmq/rooms.py",
        old="        sys.path.insert(0, place)\n",
        new="        sys.path.append(place)\n",
        caught_by=(f"{FACE}::test_rooms_come_first_on_the_path_once",),
    ),
)
