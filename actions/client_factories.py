"""What built-in actions reach outside the node by: randomness, and what opens clients of other servers.

A registry is made with one `Outside`, and hands it to the actions that ask for it. The real one, the default, imports a
client library when the first action opens it (D38). The simulation hands in one whose servers are in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from actions.http.connection_options import HttpWish
from pyddmq.actions import Action, Job

if TYPE_CHECKING:
    from aiohttp import BaseConnector

    from actions.sinks.files.folders import Folders, FolderWish
    from actions.sinks.hbase.link import HBaseLink, HBaseWish
    from actions.sinks.local_state import Keep
    from actions.sinks.redis.link import RedisLink, RedisMap, RedisWish


def real_connector(wish: HttpWish) -> BaseConnector:
    """Make aiohttp's connector over the system's sockets, in the running loop. Raises OSError for a bad `ca_file`."""
    from actions.http.checked_sockets import connector  # aiohttp is imported at the first push (D38)

    return connector(wish)


def real_redis(wish: RedisWish) -> RedisLink:
    """Make connections to a Redis server, none of which is open yet."""
    from actions.sinks.redis.link import RealRedis

    return RealRedis(wish)


def real_redis_map(wishes: Sequence[RedisWish]) -> RedisMap:
    """Make the map from keys to servers of a Redis Cluster; nothing is connected to yet."""
    from actions.sinks.redis.link import RealRedisMap

    return RealRedisMap(wishes)


def real_hbase(wish: HBaseWish) -> HBaseLink:
    """Make connections to HBase's Thrift server, none of which is open yet; they are for blocking calls."""
    from actions.sinks.hbase.link import RealHBase

    return RealHBase(wish)


def real_folders(wish: FolderWish, outside: Outside) -> Folders:
    """Make what files are written by: the node's disk, WebHDFS, or a file system that pyarrow reaches."""
    from actions.sinks.files.real_folders import folders

    return folders(wish, outside.kept, outside.http)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The bundle; see the module.

    Attributes:
        random: Draws first URLs, jitter, and ids of requests.
        http: Makes what HTTP clients connect by.
        redis: Makes connections to a Redis server.
        redis_map: Makes the map from keys to servers of a Redis Cluster.
        hbase: Makes connections to HBase.
        folders: Makes what files are written by.
        keep: Where actions of a node keep what they must know after a restart; None before there is a node.
    """

    random: random.Random = field(default_factory=random.Random)
    http: Callable[[HttpWish], BaseConnector] = real_connector
    redis: Callable[[RedisWish], RedisLink] = real_redis
    redis_map: Callable[[Sequence[RedisWish]], RedisMap] = real_redis_map
    hbase: Callable[[HBaseWish], HBaseLink] = real_hbase
    folders: Callable[[FolderWish, Outside], Folders] = real_folders
    keep: Keep | None = None

    @property
    def kept(self) -> Keep:
        """Where an action that runs keeps what it must know after a restart."""
        assert self.keep is not None, "a node hands it in before it opens actions"
        return self.keep


class OutsideAction(Action):
    """A built-in action that reaches outside the node; `outside` is set before `open`."""

    needs_package: ClassVar[tuple[str, str] | None] = None
    """A module that it imports when it opens, and the extra of pyddmq that brings it."""
    writes_numbers = True
    is_intact = False
    """The body is as it was published: no action before can have changed it. Set by the registry before `open`."""
    outside: Outside

    def preview(self, job: Job) -> list[str]:
        """Return what would be sent for a message, a line per command or part of a request; without secrets.

        Asked of actions that are not open: nothing is connected to, and no secret read.

        Raises:
            Exception: What `act` would raise for this message.
        """
        del job
        return []
