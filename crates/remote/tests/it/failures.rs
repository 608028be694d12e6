//! Servers that die, stand still, lie, or are not meant.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stokehold_base::fault::Fault;
use stokehold_loader::{
    Address, BadImage, Batch, BatchNumbers, Elsewhere, Loader, LoaderOptions, Pipeline, Pixels, WorkerPool,
    Workers,
};
use stokehold_remote::server::Server;
use stokehold_remote::{DataPart, DatasetSplit, Facts, RemoteError, Servers, encode};

use crate::{
    addresses, ask, assert_epoch_equal, both, connect, content, data_set, options, serve, serve_data,
};

#[test]
fn a_server_that_dies_costs_no_batch_and_one_that_comes_back_takes_part() {
    let (_dir, data, images) = data_set();
    let (a, b) = (serve_data(&data), serve_data(&data));
    let place = b.address.trim_start_matches("tcp://").to_owned();
    let servers = Arc::new(connect(&[&a.address, &b.address], &images).unwrap());
    let own = LoaderOptions {
        batch_size: 1,
        ..LoaderOptions::default()
    };
    let remote = LoaderOptions {
        elsewhere: Some(Arc::clone(&servers) as _),
        ..own.clone()
    };
    let loader =
        |options| Loader::new(Arc::new(images.clone()), Pipeline::imagenet_train(32), options).unwrap();
    let (remote, local) = (loader(remote), loader(own));
    let (mut made, mut expected) = (remote.epoch(0), local.epoch(0));
    for _ in 0..10 {
        assert!(content(made.next().unwrap()) == content(expected.next().unwrap()));
    }
    drop(b);
    for _ in 10..60 {
        assert!(content(made.next().unwrap()) == content(expected.next().unwrap()));
    }
    assert!(made.next().is_none());
    let before = servers.made()[1].1;
    let b = serve(options(&data, &place));
    // It is asked again after a pause of 5 s at most.
    let begun = Instant::now();
    for epoch in 1.. {
        assert_epoch_equal(&remote, &local, epoch);
        if servers.made()[1].1 > before {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(50));
    }
    assert!(b.watch.facts().batches > 0);
}

/// A server that answers each request with this, after the head; nothing if it is empty, and never closes then.
fn liar(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            match answer {
                [] => silent.push(stream),
                _ => {
                    let _ = stream.write_all(answer);
                }
            }
        }
    });
    address
}

#[test]
fn servers_that_are_silent_lie_or_send_garbage_cost_no_batch() {
    let (_dir, data, images) = data_set();
    let server = serve_data(&data);
    const DAMAGED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nstokehold-crc32: 00000000\r\n\r\nabcd";
    const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nstokehold-crc32: 00000000\r\n\r\n";
    const SHORT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nabcd";
    const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    const NO_HTTP: &[u8] = b"220 mail.example ESMTP\r\n";
    for answer in [&[][..], DAMAGED, EMPTY, SHORT, BUSY, NO_HTTP] {
        let other = liar(answer);
        let servers = connect(&[&other, &server.address], &images).unwrap();
        let (remote, local) = both(&images, &Pipeline::imagenet_train(32), servers, |_| {});
        let begun = Instant::now();
        assert_epoch_equal(&remote, &local, 0);
        let name = String::from_utf8_lossy(answer);
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{name}: {:?}",
            begun.elapsed()
        );
    }
}

/// What is done to a batch before it is sent.
type Lie = fn(&mut Batch);

/// A server whose batches are true but for `lie`, with right checksums.
fn forger(loader: Loader, lie: Lie) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data: String::new(),
        workers: 1,
        batches: 0,
        images: 0,
    };
    let facts = serde_json::to_vec(&facts).unwrap();
    thread::spawn(move || {
        let pool = WorkerPool::start(Workers::Count(NonZeroUsize::MIN)).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let path: Vec<&str> = head.split_whitespace().nth(1).unwrap_or("").split('/').collect();
            let body = match path[..] {
                [.., "batches", _, epoch, number] => {
                    let (send, made) = std::sync::mpsc::channel();
                    let epoch = loader.numbered(epoch.parse().unwrap());
                    pool.make(&epoch, number.parse().unwrap(), move |batch| {
                        send.send(batch.unwrap()).unwrap()
                    })
                    .unwrap();
                    let mut batch = made.recv().unwrap();
                    lie(&mut batch);
                    encode(batch, loader.shape()).unwrap().to_vec()
                }
                _ => facts.clone(),
            };
            let sum = crc32fast::hash(&body);
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\nstokehold-crc32: {sum:08x}\r\n\r\n",
                body.len()
            );
            // The trainer may have gone.
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&body));
        }
    });
    address
}

#[test]
fn batches_that_were_not_asked_for_train_nothing() {
    let (_dir, data, images) = data_set();
    let honest = serve_data(&data);
    let pipeline = Pipeline::imagenet_train(32);
    let lies: [(Lie, &str); 7] = [
        (|batch| batch.labels[0] = 3, "has class 3, and not"),
        (|batch| batch.samples.swap(0, 1), "it lacks sample"),
        (|batch| batch.samples.fill(0), "it lacks sample"),
        (|batch| batch.again[2] = u32::MAX, "it lacks sample"),
        (
            |batch| {
                batch.samples.pop();
                batch.labels.pop();
                batch.again.pop();
                let Pixels::Host(buffer) = &mut batch.pixels else {
                    unreachable!()
                };
                let numbers = buffer.len() - 3 * 32 * 32;
                let BatchNumbers::F32(images) = buffer.images_mut() else {
                    unreachable!()
                };
                images.truncate(numbers);
            },
            "it lacks sample",
        ),
        (
            |batch| {
                batch.bad.push(BadImage {
                    sample: 1 << 60,
                    name: String::new(),
                    reason: String::new(),
                });
            },
            "sample 1152921504606846976 of 60",
        ),
        (
            |batch| {
                // It says that the image is bad, and has it nevertheless, twice.
                let (sample, label) = (batch.samples[0], batch.labels[0]);
                batch.samples[1] = sample;
                batch.labels[1] = label;
            },
            "it lacks sample",
        ),
    ];
    for (lie, says) in lies {
        let (_, own) = both(
            &images,
            &pipeline,
            connect(&[&honest.address], &images).unwrap(),
            |_| {},
        );
        let other = forger(own, lie);
        let servers = connect(&[&other, &honest.address], &images).unwrap();
        let (remote, local) = both(&images, &pipeline, servers, |_| {});
        assert_epoch_equal(&remote, &local, 0);
        let alone = connect(&[&other], &images).unwrap();
        let (remote, _) = both(&images, &pipeline, alone, |_| {});
        let error = remote.epoch(0).next().unwrap().unwrap_err();
        assert!(error.is_input(), "{error}");
        let said = error.to_string();
        assert!(
            said.contains("another batch than it was asked for") && said.contains(says),
            "{said}"
        );
    }
}

/// A short request for a very long epoch, and one for many orders, cost bounded memory.
#[test]
fn an_epoch_of_any_length_is_refused() {
    let (_dir, data, _images) = data_set();
    let server = serve_data(&data);
    let spec =
        r#"{"sampler":{"class-balanced":{"replacement":true}},"epoch_samples":268435456,"batch_size":8}"#;
    let request = format!(
        "POST /v1/loaders HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{spec}",
        spec.len()
    );
    let answer = ask(&server.address, &request).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("at most 960, 16 times its images"), "{answer}");
}

/// More trainers than a machine has GPUs ask one server in turns, and each finds its loader again.
#[test]
fn many_ranks_share_a_server_and_its_data_set() {
    let (_dir, data, images) = data_set();
    let server = serve_data(&data);
    let loaders: Vec<(Loader, Loader)> = (0..40)
        .map(|seed| {
            let servers = connect(&[&server.address], &images).unwrap();
            both(&images, &Pipeline::imagenet_train(32), servers, |options| {
                options.seed = seed
            })
        })
        .collect();
    for epoch in 0..2 {
        for (remote, local) in &loaders {
            assert_epoch_equal(remote, local, epoch);
        }
    }
}

#[test]
fn servers_of_something_else_are_named() {
    let (_dir, data, images) = data_set();
    let (_other_dir, other, _) = data_set();
    let class = first_folder(&other);
    for part in ["train", "val"] {
        std::fs::remove_dir_all(other.join(part).join(&class)).unwrap();
    }
    let server = serve_data(&other);
    let servers = connect(&[&server.address], &images).unwrap();
    let (remote, _) = both(&images, &Pipeline::imagenet_train(32), servers, |_| {});
    let begun = Instant::now();
    let error = remote.epoch(0).next().unwrap().unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(error.is_input());
    let said = error.to_string();
    for part in [&server.address, "differ from the trainer's", "40 images"] {
        assert!(said.contains(part), "{said}");
    }
    // Next to a right one it is left out.
    let right = serve_data(&data);
    let servers = connect(&[&server.address, &right.address], &images).unwrap();
    let (remote, local) = both(&images, &Pipeline::imagenet_train(32), servers, |_| {});
    assert_epoch_equal(&remote, &local, 0);

    const VERSION: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 66\r\n\r\n\
        {\"version\":\"0.0.1\",\"data\":\"a\",\"workers\":1,\"batches\":0,\"images\":0}  ";
    let said = connect(&[&liar(VERSION)], &images).unwrap_err().to_string();
    assert!(said.contains("it has version 0.0.1"), "{said}");
}

fn first_folder(data: &std::path::Path) -> std::ffi::OsString {
    let mut folders: Vec<_> = std::fs::read_dir(data.join("train"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    folders.sort();
    folders.remove(0)
}

#[test]
fn nobody_there_is_said_at_once() {
    let (_dir, _, images) = data_set();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = format!("tcp://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = connect(&[&free], &images).unwrap_err();
    assert!(error.is_input() && error.to_string().contains(&free), "{error}");
    assert!(
        error.to_string().contains("start one with `stokehold serve`"),
        "{error}"
    );
}

#[test]
fn a_token_is_asked_for() {
    let (_dir, data, images) = data_set();
    let server = serve(stokehold_remote::server::Options {
        token: Some("a-secret".to_owned()),
        ..options(&data, "127.0.0.1:0")
    });
    let with = |token: Option<&str>| {
        let part = DataPart::of(&images, DatasetSplit::Train);
        Servers::connect(&addresses(&[&server.address]), part, token.map(str::to_owned))
    };
    let said = with(None).unwrap_err().to_string();
    assert!(
        said.contains("it asks for a token; set STOKEHOLD_TOKEN"),
        "{said}"
    );
    let said = with(Some("a-guess")).unwrap_err().to_string();
    assert!(
        said.contains("the token is another one than the server's") && !said.contains("secret"),
        "{said}"
    );
    assert!(matches!(with(Some("with a space")), Err(RemoteError::Token)));
    let (remote, local) = both(
        &images,
        &Pipeline::imagenet_train(32),
        with(Some("a-secret")).unwrap(),
        |_| {},
    );
    assert_epoch_equal(&remote, &local, 0);
    let answer = ask(
        &server.address,
        "GET /v1/facts HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert!(answer.unwrap().starts_with("HTTP/1.1 401"));
}

#[test]
fn what_cannot_be_served_is_said() {
    let (_dir, data, _) = data_set();
    let server = serve_data(&data);
    let taken = options(&data, server.address.trim_start_matches("tcp://"));
    let error = Server::bind(taken).err().unwrap();
    assert!(
        matches!(error, RemoteError::Listen { .. }) && error.is_input(),
        "{error}"
    );
    let nothing = options(&data.join("nothing"), "127.0.0.1:0");
    let error = Server::bind(nothing).err().unwrap();
    assert!(error.to_string().contains("no such folder"), "{error}");
}

#[test]
fn a_connection_that_says_nothing_holds_nobody_up() {
    let (_dir, data, images) = data_set();
    let server = serve_data(&data);
    let place = server.address.trim_start_matches("tcp://");
    let mut open = Vec::new();
    for number in 0..50 {
        let mut stream = std::net::TcpStream::connect(place).unwrap();
        // Half of them stop in the middle of a head, and some do not read their batch.
        match number % 3 {
            0 => {}
            1 => stream.write_all(b"GET /v1/facts HT").unwrap(),
            _ => stream
                .write_all(b"GET /v1/batches/default/0/0 HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap(),
        }
        open.push(stream);
    }
    let servers = connect(&[&server.address], &images).unwrap();
    let (remote, local) = both(&images, &Pipeline::imagenet_train(32), servers, |_| {});
    assert_epoch_equal(&remote, &local, 0);
    drop(open);
}

#[test]
fn addresses_say_what_is_wrong_with_them() {
    for (text, says) in [
        ("a:7000", "does not say whether to use TLS"),
        ("http://a:7000", "another word than tcp or tls"),
        ("tcp://a", "no port"),
        ("tcp://a:0", "no number from 1 to 65535"),
        ("tcp://a:70000", "no number from 1 to 65535"),
        ("tcp://:7000", "no name of a machine"),
        ("tcp://a/b:7000", "no name of a machine"),
    ] {
        let said = text.parse::<Address>().unwrap_err().to_string();
        assert!(said.contains(says) && said.contains("tcp://HOST:PORT"), "{said}");
    }
    for text in ["tcp://a:7000", "tls://[::1]:7000", "tcp://node-1.example:1"] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }
}
