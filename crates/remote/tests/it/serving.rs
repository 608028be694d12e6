//! What servers make is what the trainer's loader would make.

use std::fs;
use std::num::NonZeroUsize;
use std::sync::Arc;

use stokehold_loader::{
    BadImagePolicy, Elsewhere, Executor, Loader, LoaderOptions, Parts, Pipeline, SampleType, Sampler, Workers,
};
use stokehold_remote::{DataPart, DatasetSplit, Servers};
use stokehold_storage::{Dataset, Source};

use crate::{addresses, ask, assert_epoch_equal, both, connect, content, data_set, serve_data};

#[test]
fn batches_of_two_servers_are_those_of_the_loader() {
    let (_dir, data, images) = data_set();
    let (a, b) = (serve_data(&data), serve_data(&data));
    let check = |pipeline: &Pipeline, change: &dyn Fn(&mut LoaderOptions)| {
        let servers = connect(&[&a.address, &b.address], &images).unwrap();
        let (remote, local) = both(&images, pipeline, servers, change);
        for epoch in [0, 3] {
            assert_epoch_equal(&remote, &local, epoch);
        }
    };
    let pipeline = Pipeline::imagenet_train(32);
    check(&pipeline, &|_| {});
    check(&pipeline, &|options| options.executor = Executor::PerOp);
    for sample_type in [SampleType::F16, SampleType::Bf16] {
        check(&pipeline, &|options| options.sample_type = sample_type);
    }
    let mut bytes = pipeline.clone();
    bytes.ops.pop();
    check(&bytes, &|options| options.sample_type = SampleType::U8);
    check(&pipeline, &|options| {
        (options.rank, options.world_size, options.drop_last) = (1, 2, true);
    });
    check(&pipeline, &|options| {
        options.parts = Parts {
            first: 1,
            count: 2,
            of: 4,
        };
    });
    check(&pipeline, &|options| {
        options.sampler = Sampler::Repeated(3.try_into().unwrap());
    });
    let weights: Vec<f64> = (0..images.len()).map(|sample| sample as f64 / 7.0).collect();
    check(&pipeline, &|options| {
        options.sampler = Sampler::Weighted {
            weights: weights.clone().into(),
            replacement: true,
        };
    });
    assert!(a.watch.facts().batches > 0 && b.watch.facts().batches > 0);
}

#[test]
fn an_epoch_goes_on_in_its_middle() {
    let (_dir, data, images) = data_set();
    let server = serve_data(&data);
    let servers = connect(&[&server.address], &images).unwrap();
    let (remote, local) = both(&images, &Pipeline::imagenet_train(32), servers, |_| {});
    let mut begun = remote.epoch(1);
    let before: Vec<_> = begun.by_ref().take(3).map(content).collect();
    let state = begun.state();
    drop(begun);
    assert_eq!(before.len(), 3);
    let rest: Vec<_> = remote.resume(state.clone()).unwrap().map(content).collect();
    let expected: Vec<_> = local.resume(state).unwrap().map(content).collect();
    assert!(rest == expected, "{} and {}", rest.len(), expected.len());
}

#[test]
fn this_machine_takes_part() {
    let (_dir, data, images) = data_set();
    let server = serve_data(&data);
    let servers = connect(&[&server.address], &images).unwrap();
    let servers = Arc::new(servers.with_local(Workers::Count(NonZeroUsize::MIN)));
    let options = LoaderOptions {
        batch_size: 2,
        elsewhere: Some(Arc::clone(&servers) as _),
        ..LoaderOptions::default()
    };
    let local = LoaderOptions {
        elsewhere: None,
        ..options.clone()
    };
    let loader =
        |options| Loader::new(Arc::new(images.clone()), Pipeline::imagenet_train(32), options).unwrap();
    let (remote, local) = (loader(options), loader(local));
    for epoch in 0..3 {
        assert_epoch_equal(&remote, &local, epoch);
    }
    let made = servers.made();
    assert_eq!(made[1].0, "here");
    assert!(made[1].1 > 0, "{made:?}");
    // A batch may be made twice.
    assert!(made[0].1 + made[1].1 >= 90, "{made:?}");
}

#[test]
fn bad_images_are_the_trainers_to_deal_with() {
    let (_dir, data, images) = data_set();
    for sample in [3, 20, 21, 22, 59] {
        fs::write(images.name(sample), b"no image").unwrap();
    }
    let server = serve_data(&data);
    for policy in [BadImagePolicy::Skip, BadImagePolicy::Substitute] {
        let servers = connect(&[&server.address], &images).unwrap();
        let (remote, local) = both(&images, &Pipeline::imagenet_train(32), servers, |options| {
            options.bad_images = policy;
        });
        assert_epoch_equal(&remote, &local, 0);
        assert_epoch_equal(&remote, &local, 1);
        assert_eq!(remote.bad_images(), local.bad_images());
        assert_eq!(remote.bad_images().len(), 5);
    }
    let servers = connect(&[&server.address], &images).unwrap();
    let (remote, _) = both(&images, &Pipeline::imagenet_train(32), servers, |options| {
        options.bad_images = BadImagePolicy::Error;
        options.shuffle = false;
    });
    let error = remote.epoch(0).find_map(Result::err).unwrap().to_string();
    assert!(
        error.starts_with(&server.address) && error.contains(&images.name(3)),
        "{error}"
    );
}

#[test]
fn parts_of_the_data_set_are_chosen() {
    let (_dir, data, _) = data_set();
    let server = serve_data(&data);
    let dataset = Dataset::open(&data, None, 0).unwrap();
    let images = dataset.val.unwrap();
    let servers = Servers::connect(
        &addresses(&[&server.address]),
        DataPart::of(&images, DatasetSplit::Val),
        None,
    );
    let (remote, local) = both(
        &images,
        &Pipeline::imagenet_eval(36, 32),
        servers.unwrap(),
        |options| {
            options.shuffle = false;
        },
    );
    assert_epoch_equal(&remote, &local, 0);
}

#[test]
fn a_batch_can_be_fetched_without_a_loader() {
    let (_dir, data, _) = data_set();
    let server = serve_data(&data);
    let get = |path: &str| {
        ask(
            &server.address,
            &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        )
        .unwrap()
    };
    let answer = get("/v1/batches/default/0/1");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{}", &answer[..200]);
    assert!(answer.contains("stokehold-crc32: ") && answer.contains(r#""images":{"dtype":"F32""#));
    for (path, status, says) in [
        (
            "/v1/batches/default/0/2",
            "400",
            "batch 2: the epoch has 2, counted from 0",
        ),
        ("/v1/batches/default/x/0", "400", "is no number of an epoch"),
        ("/v1/batches/0123/0/0", "404", "knows no loader 0123"),
        ("/elsewhere", "404", "there is GET /v1/facts"),
    ] {
        let answer = get(path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.contains(says), "{answer}");
    }
    let post = |spec: &str| {
        let length = spec.len();
        let head = format!(
            "POST /v1/loaders HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{spec}"
        );
        ask(&server.address, &head).unwrap()
    };
    let answer = post(r#"{"batch_size": 8, "data": {"part": "val"}}"#);
    assert!(answer.contains(r#""batches_per_epoch":1"#), "{answer}");
    for (spec, status, says) in [
        ("{", "400", "cannot be read"),
        (r#"{"batchsize": 8}"#, "400", "batchsize"),
        (r#"{"batch_size": 0}"#, "400", "batch size 0"),
        (r#"{"version": "0.0.1", "more": 1}"#, "409", "the trainer 0.0.1"),
        (r#"{"data": {"names": "12"}}"#, "409", "differ from the trainer's"),
    ] {
        let answer = post(spec);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.contains(says), "{answer}");
    }
    let answer = ask(
        &server.address,
        "DELETE /v1/facts HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert!(answer.unwrap().starts_with("HTTP/1.1 405"));
}
