//! A drive on workers: requests, background work, closing, and the admin socket.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ask::ask_status;
use device::{Device, DeviceError, Requester};
use media::{Allocation, AnyMedia, Direct, FileMedia};
use service::{AdminSocket, IoChoice, OpenSettings, ServedDrive, Workers, inspect, run_here};

const SIZE_BYTES: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn create(path: &Path) -> Outcome {
    let options = drive::CreateOptions {
        physical_size_bytes: SIZE_BYTES,
        logical_capacity_bytes: 2 * SIZE_BYTES,
        sector_bytes: 512,
        segment_bytes: None,
        codec: codec::Policy::Auto,
        uuid: *uuid::Uuid::new_v4().as_bytes(),
        created_unix_seconds: 0,
        endurance_bytes: 0,
        keep_allocated: false,
        far_copies: None,
        parity: layout::ParityForm::None,
    };
    let media = AnyMedia::from(FileMedia::create(path, SIZE_BYTES, Allocation::Sparse, Direct::Auto)?);
    run_here(IoChoice::Auto, |_| drive::Drive::create(&media, &options))??;
    Ok(())
}

/// Makes a drive, and runs `test` with its path and one worker.
fn with_worker(
    test: impl AsyncFnOnce(&Path, &Workers) -> Outcome,
) -> Result<tempfile::TempDir, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("drive");
    create(&path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let workers = Workers::start(Some(1), IoChoice::Auto)?;
    runtime.block_on(test(&path, &workers))?;
    workers.stop();
    Ok(dir)
}

/// Serves a new drive for the length of `test`.
fn served(io: IoChoice, test: impl AsyncFnOnce(&Workers, Arc<ServedDrive>, &Path) -> Outcome) -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("drive");
    create(&path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let workers = Workers::start(Some(2), io)?;
    runtime.block_on(async {
        let drive = ServedDrive::open(&path, &OpenSettings::default(), &workers, 0).await?;
        tokio::time::timeout(Duration::from_secs(60), test(&workers, drive.clone(), dir.path())).await??;
        drive.close(PATIENCE).await?;
        Outcome::Ok(())
    })?;
    workers.stop();
    Ok(())
}

async fn write_and_read_on_every_worker(
    workers: &Workers,
    drive: Arc<ServedDrive>,
) -> Result<(), Box<dyn std::error::Error>> {
    let tasks = (0..workers.count()).map(|index| {
        let drive = drive.clone();
        workers.spawn_on(index, async move {
            let offset = (index as u64) << 20;
            let data = vec![index as u8 + 1; 100 << 10];
            drive.write(offset, &data, index == 1, &Requester::default()).await?;
            drive.flush().await?;
            let mut back = vec![0; data.len()];
            drive.read(offset, &mut back).await?;
            assert!(back == data, "worker {index} read something else");
            Ok::<(), DeviceError>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    let report = drive.report();
    let requests = report.server.ok_or("a served drive has a server")?.requests;
    assert_eq!((requests.writes_count, requests.reads_count, requests.flushes_count), (2, 2, 2));
    assert_eq!(requests.in_flight_count, 0);
    assert_eq!(report.host_written_bytes, 200 << 10);
    Ok(())
}

#[test]
fn workers_carry_requests() -> Outcome {
    served(IoChoice::Auto, async |workers, drive, _| write_and_read_on_every_worker(workers, drive).await)
}

#[test]
fn plain_system_calls_do_as_well() -> Outcome {
    served(IoChoice::Plain, async |workers, drive, _| {
        assert_eq!(drive.report().server.ok_or("no server")?.io_backend, status::IoBackend::Plain);
        write_and_read_on_every_worker(workers, drive).await
    })
}

#[test]
fn a_write_reaches_the_backing_without_being_asked() -> Outcome {
    served(IoChoice::Auto, async |_, drive, _| {
        let before = drive.report().physical_written_bytes;
        drive.write(0, &[7; 4096], false, &Requester::default()).await?;
        while drive.report().physical_written_bytes == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
}

#[test]
fn a_closed_drive_refuses_and_is_clean() -> Outcome {
    let dir = with_worker(async |path, workers| {
        let drive = ServedDrive::open(path, &OpenSettings::default(), workers, 0).await?;
        drive.write(4096, &[9; 8192], false, &Requester::default()).await?;
        drive.close(PATIENCE).await?;
        drive.close(PATIENCE).await?;
        assert_eq!(drive.flush().await, Err(DeviceError::Shutdown));
        assert_eq!(drive.read(0, &mut [0; 512]).await, Err(DeviceError::Shutdown));
        Ok(())
    })?;
    run_here(IoChoice::Auto, |spawner| async {
        let drive = inspect(&dir.path().join("drive"), false, spawner).await?;
        assert!(drive.status().recovered.clean);
        let mut back = [0; 8192];
        drive.read(4096, &mut back).await?;
        assert_eq!(back, [9; 8192]);
        Outcome::Ok(())
    })?
}

#[test]
fn a_closed_drive_trains_and_grows_no_more() -> Outcome {
    served(IoChoice::Auto, async |_, drive, _| {
        drive.close(PATIENCE).await?;
        let error = drive.train().await.err().ok_or("trained")?.to_string();
        assert!(error.contains("closed"), "{error}");
        let grown = drive.set_physical_size(2 * SIZE_BYTES, Allocation::Sparse).await;
        let error = grown.err().ok_or("grown")?.to_string();
        assert!(error.contains("closed"), "{error}");
        assert_eq!(std::fs::metadata(drive.path())?.len(), SIZE_BYTES);
        drive.start_settle();
        let server = drive.report().server.ok_or("no server")?;
        assert!(server.settling.run.is_none(), "nobody would do it");
        Ok(())
    })
}

#[test]
fn a_closed_drive_can_be_opened_again_while_clients_of_its_admin_socket_stay() -> Outcome {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    with_worker(async |path, workers| {
        let drive = ServedDrive::open(path, &OpenSettings::default(), workers, 0).await?;
        let socket = path.with_file_name("admin.sock");
        let listening = AdminSocket::listen(&socket, drive.clone())?;
        let mut client = BufReader::new(tokio::net::UnixStream::connect(&socket).await?);
        client.write_all(b"{\"command\":\"status\"}\n").await?;
        let mut answer = String::new();
        client.read_line(&mut answer).await?;
        assert!(answer.starts_with("{\"drives\":[{"), "{answer}");
        drive.close(PATIENCE).await?;
        drop(listening);
        let closed = Arc::downgrade(&drive);
        drop(drive);
        assert!(closed.upgrade().is_none(), "somebody keeps the drive, and with it the lock");
        let again = ServedDrive::open(path, &OpenSettings::default(), workers, 0).await?;
        client.write_all(b"{\"command\":\"status\"}\n").await?;
        assert_eq!(client.read_line(&mut String::new()).await?, 0, "there is nobody to ask any more");
        again.close(PATIENCE).await?;
        Ok(())
    })?;
    Ok(())
}

#[test]
fn a_drive_is_served_once() -> Outcome {
    served(IoChoice::Auto, async |workers, drive, _| {
        let again = ServedDrive::open(drive.path(), &OpenSettings::default(), workers, 0).await;
        let message = again.err().ok_or("opened a second time")?.to_string();
        assert!(message.contains("in use"), "{message}");
        Ok(())
    })
}

#[test]
fn the_admin_socket_reports_status() -> Outcome {
    served(IoChoice::Auto, async |_, drive, dir| {
        let socket = dir.join("admin.sock");
        // What a killed server leaves behind.
        drop(std::os::unix::net::UnixListener::bind(&socket)?);
        let listening = AdminSocket::listen(&socket, vec![drive.clone()])?;
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&socket)?.permissions().mode() & 0o777, 0o600);
        let asked = socket.clone();
        let answer = tokio::task::spawn_blocking(move || ask_status(&asked)).await??;
        assert_eq!(answer.drives.len(), 1);
        assert_eq!(answer.drives[0].path, drive.path());
        assert_eq!(answer.drives[0].logical_capacity_bytes, 2 * SIZE_BYTES);
        assert!(AdminSocket::listen(&socket, Vec::new()).is_err(), "two servers on one socket");
        drop(listening);
        assert!(!socket.exists());
        Ok(())
    })
}

/// Requests that ask for nothing that can be done, and a word of the answer. `ID` is the drive's.
const NONSENSE: [(&str, &str); 26] = [
    ("", "not a request"),
    ("{", "not a request"),
    ("status", "not a request"),
    ("[1,2]", "not a request"),
    ("null", "not a request"),
    ("{}", "command"),
    (r#"{"command":"explode"}"#, "explode"),
    (r#"{"command":7}"#, "not a request"),
    (r#"{"command":"status"}{"command":"status"}"#, "trailing"),
    (r#"{"command":"change"}"#, "drive"),
    (r#"{"command":"change","drive":"ID"}"#, "change"),
    (r#"{"command":"change","drive":"ID","change":"wipe"}"#, "wipe"),
    (r#"{"command":"change","drive":"ID","change":"set-capacity"}"#, "not a request"),
    (r#"{"command":"change","drive":"ID","change":{"set-capacity":{}}}"#, "bytes"),
    (r#"{"command":"change","drive":"ID","change":{"set-capacity":{"bytes":-1}}}"#, "-1"),
    (r#"{"command":"change","drive":"ID","change":{"set-capacity":{"bytes":1e9}}}"#, "floating"),
    (r#"{"command":"change","drive":"ID","change":{"set-capacity":{"bytes":"1G"}}}"#, "1G"),
    (
        r#"{"command":"change","drive":"ID","change":{"set-capacity":{"bytes":99999999999999999999}}}"#,
        "request",
    ),
    (r#"{"command":"change","drive":"ID","change":{"set-capacity":{"bytes":1125899906842624}}}"#, "256 TiB"),
    (r#"{"command":"change","drive":"ID","change":{"set-capacity":{"bytes":1048576}}}"#, "only a wipe"),
    (
        r#"{"command":"change","drive":"ID","change":{"set-capacity":{"bytes":268435456,"force":true}}}"#,
        "force",
    ),
    (r#"{"command":"change","drive":"ID","change":{"set-size":{"bytes":1048576}}}"#, "only grow"),
    (
        r#"{"command":"change","drive":"ID","change":{"set-size":{"bytes":18446744073709551615}}}"#,
        "four times",
    ),
    (
        r#"{"command":"change","drive":"ID","change":{"set-size":{"bytes":100000000,"prealocate":true}}}"#,
        "prealocate",
    ),
    (
        r#"{"command":"change","drive":"ID","change":{"start-scrub":{"bytes_per_second":0}}}"#,
        "greater than 0",
    ),
    (
        r#"{"command":"change","drive":"00000000","change":{"set-size":{"bytes":100000000}}}"#,
        "not served here",
    ),
];

#[test]
fn the_admin_socket_survives_nonsense_and_changes_nothing() -> Outcome {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    served(IoChoice::Auto, async |_, drive, dir| {
        let socket = dir.join("admin.sock");
        let _listening = AdminSocket::listen(&socket, vec![drive.clone()])?;
        let state = || {
            let report = drive.report();
            let scrub = report.server.and_then(|server| server.scrub).is_some();
            (report.logical_capacity_bytes, report.physical_size_bytes, scrub)
        };
        let before = state();
        let (read, mut write) = tokio::net::UnixStream::connect(&socket).await?.into_split();
        let mut lines = BufReader::new(read).lines();
        let id = drive.uuid().to_string();
        for (nonsense, says) in NONSENSE {
            write.write_all(format!("{}\n", nonsense.replace("ID", &id)).as_bytes()).await?;
            let answer = lines.next_line().await?.ok_or("hung up")?;
            assert!(answer.starts_with("{\"error\":") && answer.contains(says), "{nonsense}: {answer}");
        }
        // No text, and nested deeper than anybody would.
        for nonsense in [&b"\xff\xfe\x00"[..], &b"[".repeat(50_000)] {
            write.write_all(&[nonsense, b"\n"].concat()).await?;
            let answer = lines.next_line().await?.ok_or("hung up")?;
            assert!(answer.starts_with("{\"error\":") && answer.len() < 1000, "{answer}");
        }
        write.write_all(b"{\"command\":\"status\"}\n").await?;
        assert!(lines.next_line().await?.ok_or("hung up")?.starts_with("{\"drives\":[{"));
        // One without its end is answered, and one too long; then the server hangs up.
        for (request, says) in
            [(b"{\"command\"".to_vec(), "not a request"), (vec![b' '; 100 << 10], "at most 65536 bytes")]
        {
            let mut stream = tokio::net::UnixStream::connect(&socket).await?;
            // Not all of it is taken.
            let _ = stream.write_all(&request).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let ended = stream.read_to_end(&mut answer).await;
            assert!(ended.is_ok() || !answer.is_empty(), "{ended:?}");
            let answer = String::from_utf8(answer)?;
            assert!(answer.contains(says) && answer.lines().count() == 1, "{answer}");
        }
        assert_eq!(state(), before);
        assert_eq!(std::fs::metadata(drive.path())?.len(), SIZE_BYTES);
        Ok(())
    })
}
