//! qemu-img and qemu-io

use crate::common::{Drive, Outcome, in_time, needs, sample, succeed};

#[test]
fn qemu_img_converts_compares_and_maps() -> Outcome {
    if !needs(&["qemu-img"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M", "--sector", "4096"]);
    let data = drive.file("data");
    let mut image = sample(1, 64 << 20);
    image[8 << 20..24 << 20].fill(0);
    std::fs::write(&data, &image)?;
    let server = drive.serve(&[]);
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &data, server.uri()]);
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", &data, server.uri()]);
    let map = succeed("qemu-img", &["map", "-f", "raw", "--output=json", server.uri()]);
    let map: serde_json::Value = serde_json::from_str(&map)?;
    let zeros: u64 = map
        .as_array()
        .ok_or("a list")?
        .iter()
        .filter(|run| run["zero"] == true)
        .filter_map(|run| run["length"].as_u64())
        .sum();
    assert_eq!(zeros, 16 << 20, "{map}");
    Ok(())
}

#[test]
fn qemu_io_patterns() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    let commands = [
        "write -P 17 0 1M",
        "write -f -P 18 1M 512",
        "write -P 19 4608 1024",
        "write -P 20 2M 33M",
        "aio_write -P 21 40M 256k",
        "aio_flush",
        "read -P 17 0 4608",
        "read -P 19 4608 1024",
        "read -P 17 5632 64k",
        "read -P 18 1M 512",
        "read -P 0 1049088 3584",
        "read -P 20 2M 33M",
        "read -P 21 40M 256k",
        "discard 64k 64k",
        "read -P 0 64k 64k",
        "read -P 17 128k 64k",
        "write -z 256k 4k",
        "read -P 0 256k 4k",
        "write -zu 512k 64k",
        "read -P 0 512k 64k",
        "discard 2M 33M",
        "read -P 0 2M 33M",
        "flush",
    ];
    let mut arguments = vec!["-f", "raw", "-d", "unmap"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(server.uri());
    let said = succeed("qemu-io", &arguments);
    assert!(!said.contains("Pattern verification failed"), "{said}");
    // The data is also intact after a crash, because all of it was flushed.
    server.kill();
    let server = drive.serve(&[]);
    let again = ["read -P 18 1M 512", "read -P 0 64k 64k", "read -P 21 40M 256k", "read -P 0 2M 33M"];
    let mut arguments = vec!["-r", "-f", "raw"];
    again.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(server.uri());
    let said = in_time("qemu-io", &arguments);
    assert!(said.code == Some(0) && !said.stdout.contains("failed"), "{said:?}");
}
