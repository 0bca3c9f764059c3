"""Options of the sinks of files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from actions.sinks.files.layout import check_path, zone_of
from conf.base import Model, Reload, setting
from conf.secrets import Secret, check_no_user

WHOLE_SECONDS_MAX = 60


def _check_zone(name: str) -> str:
    zone_of(name)
    return name


Path = Annotated[str, AfterValidator(check_path)]
Zone = Annotated[str, AfterValidator(_check_zone)]


class _FileOptions(Model):
    """What all sinks of files take."""

    content: Literal["message", "body"] = setting(
        "message",
        "Content of a line of `json`: the `message` with its key, tag, offset, times, properties and body, "
        "or only the `body`, which must be JSON.",
        reload=Reload.GENERATION,
    )
    rotate_seconds: int | None = setting(
        None,
        "Seconds after which a file is closed and renamed; at most 60 for files that are written whole "
        "(Parquet, and all files in object stores).",
        reload=Reload.GENERATION,
        absent="60 for files that are written whole, 600 for others",
        ge=1,
        le=86_400,
    )
    rotate_bytes: int = setting(
        64 * 1024 * 1024,
        "Size in bytes at which a file is closed; files that are written whole are in memory until then.",
        reload=Reload.GENERATION,
        ge=1_024,
        le=1 << 40,
    )
    rotate_messages: int | None = setting(
        None,
        "Number of messages at which a file is closed. For files that are written whole it cannot exceed "
        "`concurrency`, since their messages are answered when the file is closed: raise both.",
        reload=Reload.GENERATION,
        absent="1000 for files that are written whole, no limit for others",
        ge=1,
    )
    idle_seconds: int = setting(
        5,
        "Seconds without a message after which a file that is written whole is closed.",
        reload=Reload.GENERATION,
        ge=1,
        le=60,
    )
    max_file_count: int = setting(
        128,
        "Maximum number of open files; above it the least recently used is closed.",
        reload=Reload.GENERATION,
        ge=1,
        le=10_000,
    )
    time_zone: Zone = setting("UTC", "Time zone of the times in paths.", reload=Reload.GENERATION)


class FileOptions(_FileOptions):
    """`options: {File: {...}}`."""

    url: str = setting(
        ...,
        "Root folder: an absolute path on the node's machine, or a URL that pyarrow supports, such as "
        "`s3://bucket/folder` or `gs://bucket/folder`.",
        reload=Reload.GENERATION,
        min_length=1,
    )
    path: Path = setting(
        "${topic}/${yyyy}-${MM}-${dd}",
        "Folders below the root: `${group}`, `${topic}`, and the message's store time as `${yyyy} ${MM} "
        "${dd} ${HH} ${mm}`.",
        reload=Reload.GENERATION,
    )
    format: Literal["json", "text", "parquet"] = setting(
        "json", "Format: JSON lines, one body per line, or Parquet.", reload=Reload.GENERATION
    )
    flush_ms: int = setting(
        100,
        "Milliseconds for which messages are collected before they are written, synced and answered.",
        reload=Reload.GENERATION,
        ge=1,
        le=60_000,
    )
    endpoint: str | None = setting(None, "S3: address of a server other than Amazon's.", reload=Reload.GENERATION)
    region: str | None = setting(None, "S3: region.", reload=Reload.GENERATION)
    access_key: str | None = setting(None, "S3: access key.", reload=Reload.GENERATION, absent="from the environment")
    secret_key: Secret | None = setting(
        None, "S3: secret key, `{file: PATH}` or `{env: NAME}`.", reload=Reload.GENERATION
    )

    @property
    def is_local(self) -> bool:
        """Whether files lie on the node's machine."""
        return self.url.startswith(("/", "file:///"))

    @property
    def is_whole(self) -> bool:
        """Whether files are written whole."""
        return self.format == "parquet" or not self.is_local

    @model_validator(mode="after")
    def _check(self) -> FileOptions:
        check_no_user(self.url)
        if self.endpoint is not None:
            check_no_user(self.endpoint)
        if not self.is_local and "://" not in self.url:
            raise ValueError(f"url {self.url!r} is neither an absolute path nor a URL such as s3://bucket/folder")
        if not self.is_local and self.url.startswith(("http:", "https:", "webhdfs:", "hdfs:")):
            raise ValueError("url is of HDFS or the web: HDFS is written by the action Hdfs, the web by AsyncHttp")
        s3 = {
            "endpoint": self.endpoint,
            "region": self.region,
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
        }
        if not self.url.startswith("s3://") and (given := [name for name, value in s3.items() if value is not None]):
            raise ValueError(f"{given[0]} is only for s3://; remove it")
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("accessKey and secretKey belong together")
        _check_rotation(self, is_whole=self.is_whole)
        return self


class HdfsOptions(_FileOptions):
    """`options: {Hdfs: {...}}`; fields of DDMQ's `hdfsConfiguration` keep their names (R64, R65)."""

    urls: list[Annotated[str, AfterValidator(check_no_user)]] = setting(
        ...,
        "WebHDFS of the name nodes, such as `http://namenode:9870`; with several the active one is found.",
        reload=Reload.GENERATION,
        min_length=1,
        max_length=16,
    )
    root_path: str = setting(..., "Root folder, absolute.", reload=Reload.GENERATION, pattern=r"^/")
    file_path: Path = setting(
        "${topic}/${yyyy}-${MM}-${dd}/${HH}",
        "Folders below the root: `${group}`, `${topic}`, and the message's store time as `${yyyy} ${MM} "
        "${dd} ${HH} ${mm}`.",
        reload=Reload.GENERATION,
    )
    user_name: str = setting(..., "HDFS user that owns the files.", reload=Reload.GENERATION, min_length=1)
    file_type: Literal["text", "sequence", "json", "parquet"] = setting(
        "text",
        "Format: one body per line, SequenceFile (Text, BytesWritable), JSON lines, or Parquet.",
        reload=Reload.GENERATION,
    )
    token: Secret | None = setting(None, "Delegation token, `{file: PATH}` or `{env: NAME}`.", reload=Reload.GENERATION)
    ca_file: str | None = setting(None, "PEM file of the CAs that verify https servers.", reload=Reload.GENERATION)
    timeout: int = setting(30_000, "Timeout of a call in milliseconds.", reload=Reload.GENERATION, ge=1, le=600_000)
    flush_ms: int = setting(
        1_000,
        "Milliseconds for which messages are collected before they are written and answered.",
        reload=Reload.GENERATION,
        ge=1,
        le=60_000,
    )

    @property
    def is_whole(self) -> bool:
        """Whether files are written whole."""
        return self.file_type == "parquet"

    @model_validator(mode="before")
    @classmethod
    def _from_ddmq(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        value = dict(value)
        if value.get("fileType") in ("SequenceFile", "Text"):
            value["fileType"] = {"SequenceFile": "sequence", "Text": "text"}[value["fileType"]]
        for name in ("reExpDatabase", "reExpTable"):
            if value.get(name) == "":
                del value[name]
            elif name in value:
                raise ValueError(f"DDMQ never used {name}; remove it")
        if "password" in value:
            raise ValueError(
                "WebHDFS has no password, and DDMQ never used it; remove it, or write `token: {file: PATH}`"
            )
        return value

    @model_validator(mode="after")
    def _check(self) -> HdfsOptions:
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url!r} is not a valid address of WebHDFS; write for example http://namenode:9870")
        _check_rotation(self, is_whole=self.is_whole)
        return self


def _check_rotation(options: _FileOptions, *, is_whole: bool) -> None:
    if is_whole and options.rotate_seconds is not None and options.rotate_seconds > WHOLE_SECONDS_MAX:
        raise ValueError(
            f"rotateSeconds is at most {WHOLE_SECONDS_MAX} for files that are written whole: their messages "
            "are answered when they are closed"
        )
