# docker build -t slm-lab . && mkdir -p data
# docker run --rm --user "$(id -u)" -v "$PWD/data:/work/data" slm-lab run ppo_cartpole
# A build argument PIP_EXTRA_INDEX_URL with torch's index of CPU builds makes it much smaller.
FROM python:3.13-slim
ARG PIP_EXTRA_INDEX_URL
COPY . /src
RUN pip install --no-cache-dir -c /src/constraints.txt "/src[export]" && mkdir -m 1777 /work
ENV HOME=/tmp
WORKDIR /work
USER 1000
ENTRYPOINT ["slm-lab"]
CMD ["run"]
